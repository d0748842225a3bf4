"""SIGKILL, SIGINT and SIGTERM at random moments of all commands that write."""

from __future__ import annotations

import random
import signal
from collections import Counter

from . import checks
from .checks import Findings, Scenario
from .inject import Say
from .scenarios import Folder, chosen, folder, scenarios
from .warm import Outcome, Signal

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)


def kill(
    only: list[str], n_signals: int, seed: int, *, learns: bool, say: Say
) -> dict[str, object]:
    """Sends signals, as many to each command; gives numbers and findings."""
    results: dict[str, object] = {}
    with folder(learns) as place:
        commands = chosen(only, learns)
        for number, command in enumerate(commands):
            # The first ones get what does not divide.
            share = n_signals // len(commands) + (number < n_signals % len(commands))
            chance = random.Random(f"{seed} {command.name}")
            findings = Findings()
            midway: Counter[str] = Counter()
            situations = list(enumerate(scenarios(place, command)))
            for i, scenario in situations:
                for _ in range(share // len(situations) + (i < share % len(situations))):
                    one = Signal(chance.uniform(0, scenario.seconds), chance.choice(SIGNALS))
                    again = f"kill --only {command.name} --signals {n_signals} --seed {seed}"
                    outcome = disturb(place, scenario, one, findings, again)
                    midway[one.number.name] += outcome.code != 0
            say(
                f"{command.name}: {findings.n_faults} signals, {sum(midway.values())} midway, "
                f"{len(findings.found)} findings"
            )
            results[command.name] = {
                "faults": findings.n_faults,
                "midway": dict(midway),
                "findings": findings.found,
            }
    return results


def disturb(
    place: Folder, scenario: Scenario, sent: Signal, findings: Findings, again: str
) -> Outcome:
    """One signal, and what must hold after it."""
    checks.restore(scenario, place.area)
    outcome = place.run(scenario.line, sent=sent)
    findings.n_faults += 1
    about = f"{scenario.name}, {sent.number.name} after {sent.seconds:.4f} s\n{outcome.err}"
    for problem in (
        ending_problem(outcome, sent.number),
        checks.output_problem(scenario, place.area, place.run),
        checks.recovery_problem(scenario, place.area, place.run),
    ):
        if problem is not None:
            findings.add(problem, again, about)
    return outcome


def ending_problem(outcome: Outcome, number: signal.Signals) -> str | None:
    """What is wrong with how a command ended that was sent a signal."""
    if outcome.hung:
        return f"hangs after {number.name}"
    if "Traceback" in outcome.err or "panicked" in outcome.err:
        return f"traceback after {number.name}"
    # 0: it was over before. SIGTERM may be left to the system.
    allowed = {0, 130} if number is signal.SIGINT else {0, -number, 143}
    return None if outcome.code in allowed else f"exit code {outcome.code} after {number.name}"
