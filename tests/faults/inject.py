"""An error or a kill at the n-th call that changes a file, for every n."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from . import checks
from .checks import Findings, Scenario
from .scenarios import Folder, chosen, folder, scenarios
from .shim import FAULTS, Fault
from .warm import Injected


def inject(
    only: list[str],
    situations: list[str],
    faults: list[str],
    at: list[int],
    calls: tuple[int, int],
    *,
    learns: bool,
) -> Iterator[tuple[str, Findings]]:
    """Goes through commands, situations, faults and calls; yields the findings of each command.

    Args:
        at: the calls to disturb; all by default.
        calls: the most calls to disturb, for commands without and with torch.
    """
    with folder(learns) as place:
        for command in chosen(only, learns):
            findings = Findings()
            for scenario in scenarios(place, command, situations):
                numbers = at or drawn(scenario, calls[command.learns])
                for fault in [FAULTS[name] for name in faults or FAULTS]:
                    for n in numbers:
                        disturb(place, scenario, fault, n, findings)
            yield command.name, findings


def drawn(scenario: Scenario, most: int) -> Iterable[int]:
    """Which calls to disturb: all, or `most` of them, including the first and the last."""
    # One more than were counted: with threads, the number of calls may vary.
    every = range(1, scenario.n_calls + 2)
    if len(every) <= most:
        return every
    chance = random.Random(scenario.command.name + scenario.name)
    return sorted({1, scenario.n_calls, *chance.sample(every, most)})


def disturb(place: Folder, scenario: Scenario, fault: Fault, n: int, findings: Findings) -> None:
    """One fault, and what must hold after it."""
    checks.restore(scenario, place.area)
    outcome = place.run(scenario.line, Injected(place.area, n, fault))
    findings.n_faults += 1
    again = f"inject --only {scenario.command.name} --situation {scenario.name}"
    again += f" --fault {fault.name} --at {n}"
    full = fault.name in ("full", "short")
    for problem in (
        checks.message_problem(outcome, fault.name == "kill", full),
        checks.output_problem(scenario, place.area, place.run),
        checks.recovery_problem(scenario, place.area, place.run),
    ):
        findings.check(problem, again, outcome.err)
