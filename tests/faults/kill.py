"""SIGKILL, SIGINT and SIGTERM at random moments of all commands that write."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

from . import checks
from .checks import Findings, Scenario
from .scenarios import Folder, chosen, folder, scenarios
from .warm import Outcome, Signal

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def kill(
    only: list[str], n_signals: int, seed: int, *, learns: bool
) -> Iterator[tuple[str, Findings]]:
    """Sends signals, about as many to each command; yields the findings of each."""
    with folder(learns) as place:
        commands = chosen(only, learns)
        left = n_signals
        for number, command in enumerate(commands):
            share = left // (len(commands) - number)
            left -= share
            chance = random.Random(f"{seed} {command.name}")
            again = f"kill --only {command.name} --signals {share} --seed {seed}"
            findings = Findings()
            # Not a list: each situation overwrites the one before.
            situations = 2 + command.resumes
            for i, scenario in enumerate(scenarios(place, command)):
                upto = share * (i + 1) // situations
                while findings.n_faults < upto:
                    disturb(place, scenario, chance, upto, findings, again)
            yield command.name, findings


def disturb(
    place: Folder,
    scenario: Scenario,
    chance: random.Random,
    upto: int,
    findings: Findings,
    again: str,
) -> None:
    """One signal, or some in a row while the work is resumed, and what must hold after them."""
    checks.restore(scenario, place.area)
    line = scenario.line
    told = ""
    for number in range(min(chance.choice((1, 1, 1, 2, 3)), upto - findings.n_faults)):
        sent = Signal(chance.uniform(0, scenario.seconds), chance.choice(SIGNALS))
        outcome = place.run(line, sent=sent)
        findings.n_faults += 1
        told += f"{scenario.name}, {sent.number.name} after {sent.seconds:.4f} s\n{outcome.err}"
        findings.check(ending_problem(outcome, sent.number, first=number == 0), again, told)
        findings.check(checks.output_problem(scenario, place.area, place.run), again, told)
        if scenario.command.resumes:
            line = scenario.command.line("--resume")
    findings.check(checks.recovery_problem(scenario, place.area, place.run), again, told)


def ending_problem(outcome: Outcome, number: signal.Signals, first: bool) -> str | None:
    """What is wrong with the end of a command that was sent a signal."""
    if outcome.hung:
        return f"hangs after {number.name}"
    if "Traceback" in outcome.err or "panicked" in outcome.err:
        return f"traceback after {number.name}"
    # 0: it finished before the signal. SIGTERM need not be handled.
    allowed = {0, 130} if number is signal.SIGINT else {0, -number, 143}
    # A finished output may be refused.
    if not first and "error:" in outcome.err:
        allowed |= {1}
    return None if outcome.code in allowed else f"exit code {outcome.code} after {number.name}"
