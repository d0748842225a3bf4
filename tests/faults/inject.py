"""An error or a kill at the n-th call that changes a file, for every n."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from . import checks
from .checks import Findings, Scenario
from .scenarios import Folder, chosen, folder, scenarios
from .shim import FAULTS, Fault
from .warm import Injected

Say = Callable[[str], None]


def inject(
    only: list[str],
    situations: list[str],
    faults: list[str],
    at: list[int],
    *,
    learns: bool,
    per_command: int,
    say: Say,
) -> dict[str, object]:
    """Goes through commands, situations and faults; of commands that learn, and of those with more
    calls than `per_command`, as many calls are drawn. Gives numbers and findings."""
    results: dict[str, object] = {}
    with folder(learns) as place:
        for command in chosen(only, learns):
            findings = Findings()
            calls = 0
            for scenario in scenarios(place, command):
                if situations and scenario.name not in situations:
                    continue
                calls += scenario.n_calls
                for fault in [FAULTS[name] for name in faults or FAULTS]:
                    for n in at or drawn(scenario, per_command):
                        disturb(place, scenario, fault, n, findings)
            say(f"{command.name}: {findings.n_faults} faults, {len(findings.found)} findings")
            results[command.name] = {
                "calls": calls,
                "faults": findings.n_faults,
                "findings": findings.found,
            }
    return results


def drawn(scenario: Scenario, most: int) -> Iterable[int]:
    """Which calls to disturb: all, or `most` of them, the first and the last among them."""
    # One more than there were: threads may make more of them another time.
    every = range(1, scenario.n_calls + 2)
    if len(every) <= most:
        return every
    chance = random.Random(scenario.command.name + scenario.name)
    return sorted({1, scenario.n_calls, *chance.sample(every, most)})


def disturb(
    place: Folder, scenario: Scenario, fault: Fault, n: int, findings: Findings
) -> None:
    """One fault, and what must hold after it."""
    checks.restore(scenario, place.area)
    outcome = place.run(scenario.line, Injected(place.area, n, fault))
    findings.n_faults += 1
    again = f"inject --only {scenario.command.name} --situation {scenario.name}"
    again += f" --fault {fault.name} --at {n}"

    def check(problem: str | None) -> None:
        if problem is not None:
            findings.add(problem, again, outcome.err)

    full = fault.name in ("full", "short")
    check(checks.message_problem(outcome, fault.name == "kill", full))
    check(checks.output_problem(scenario, place.area, place.run))
    if outcome.code == 0 and outcome.calls < n:
        check(None if checks.tree(place.area) == scenario.new else "another output undisturbed")
    check(checks.recovery_problem(scenario, place.area, place.run))


