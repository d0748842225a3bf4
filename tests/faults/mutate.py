"""Damaged files, for every reader: an error message or a result, in time and memory that fit the
size of the file; never a traceback, a signal or a hang.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

from .checks import Findings
from .mutations import MUTATIONS
from .readers import Reader, readers
from .scenarios import Folder, folder, is_wanted
from .warm import Limits, Outcome

# Allowed beyond the cost with undamaged files: a constant, and an amount per byte of a file.
MEMORY, MEMORY_PER_BYTE = 96 << 20, 64
SECONDS, SECONDS_PER_BYTE = 3.0, 1e-5
# A process that takes longer counts as hung; allocations beyond the memory limit fail, so that
# other programs are not killed.
LIMITS = Limits(seconds=120, memory=6 << 30)


def mutate(
    only: list[str], n_mutations: int, seed: int, at: list[int], *, learns: bool
) -> Iterator[tuple[str, Findings]]:
    """Damages files, `n_mutations` for every reader or those numbered in `at`; yields the findings
    of each reader."""
    with folder(learns) as place:
        for reader in readers(place, learns):
            if not is_wanted(reader.name, only):
                continue
            usual = [_run(place, line, reader.files) for line in reader.lines]
            for line, outcome in zip(reader.lines, usual):
                if outcome.code != 0:
                    raise RuntimeError(f"{line} failed with sound files: {outcome}")
            findings = Findings()
            for number in at or range(n_mutations):
                _try_one(place, reader, usual, seed, number, findings)
            yield reader.name, findings


def _try_one(
    place: Folder,
    reader: Reader,
    usual: list[Outcome],
    seed: int,
    number: int,
    findings: Findings,
) -> None:
    """One damaged file, read by every command of the reader."""
    chance = random.Random(f"{seed} {reader.name} {number}")
    files = dict(reader.files)
    name, how = _damage(files, chance)
    again = f"mutate --only {reader.name} --seed {seed} --at {number}"
    for line, undamaged in zip(reader.lines, usual):
        outcome = _run(place, line, files, {name: how})
        findings.n_faults += 1
        problem = _problem(outcome, undamaged, len(files[name]))
        findings.check(problem, again, f"{name}, {how}: bytemill {line}\n{outcome.err}")


def _damage(files: dict[str, bytes], chance: random.Random) -> tuple[str, str]:
    """Damages one of the files; returns its name and the kind of damage."""
    name = chance.choice(sorted(files))
    drawn = chance.random()
    if drawn < 0.03:
        return name, chance.choice(("FIFO", "directory"))
    if drawn < 0.1 and len(files) > 1:
        other = chance.choice(sorted(files.keys() - {name}))
        files[name] = files[other]
        return name, f"the content of {other}"
    mutations = [chance.choice(MUTATIONS) for _ in range(chance.choice((1, 1, 1, 2)))]
    for mutation in mutations:
        files[name] = mutation(files[name], chance)
    return name, " and ".join(mutation.__name__ for mutation in mutations)


def _run(
    place: Folder, line: str, files: dict[str, bytes], damaged: dict[str, str] | None = None
) -> Outcome:
    """Writes the files, and runs a command on them."""
    place.empty()
    for name, data in files.items():
        path = place.area / name
        path.parent.mkdir(parents=True, exist_ok=True)
        how = (damaged or {}).get(name)
        if how == "FIFO":
            os.mkfifo(path)
        elif how == "directory":
            path.mkdir()
        else:
            path.write_bytes(data)
    return place.run(line, limits=LIMITS)


def _problem(outcome: Outcome, usual: Outcome, size: int) -> str | None:
    if outcome.hung:
        return "hangs"
    if "Traceback" in outcome.err or "panicked" in outcome.err:
        return f"traceback: {outcome.err.strip().splitlines()[-1][:200]}"
    if outcome.code < 0:
        return f"ended by {signal.Signals(-outcome.code).name}"
    if outcome.code not in (0, 1, 2):
        return f"exit code {outcome.code}"
    if outcome.code != 0 and not outcome.err.strip():
        return "fails without a message"
    if outcome.cpu > usual.cpu * 3 + SECONDS + SECONDS_PER_BYTE * size:
        return f"slow: {outcome.cpu:.1f} s instead of {usual.cpu:.1f} s"
    if outcome.memory > usual.memory + MEMORY + MEMORY_PER_BYTE * size:
        return f"memory: {outcome.memory >> 20} MB instead of {usual.memory >> 20} MB"
    if "out of memory" in outcome.err:
        return "memory: asks for more than there is"
    return None
