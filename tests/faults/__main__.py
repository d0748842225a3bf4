"""`python -m faults`, in tests/: see `--help`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from . import inject, kill, mutate, shim, warm

RESULTS = Path(__file__).with_name("results.json")
PARTS = ("inject", "kill", "mutate")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "all"], help="which part to run")
    parser.add_argument("--only", action="append", default=[], help="command, or format of files")
    parser.add_argument("--situation", action="append", default=[], help="fresh, overwrite, resume")
    parser.add_argument("--fault", action="append", default=[], choices=shim.FAULTS)
    parser.add_argument("--at", action="append", default=[], type=int, help="n-th call, or seed")
    parser.add_argument("--calls", type=int, default=400, help="most calls of a command to disturb")
    parser.add_argument("--signals", type=int, default=1000, help="signals to send")
    parser.add_argument("--mutations", type=int, default=200, help="damaged files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-torch", action="store_true", help="skip what needs torch")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args()


def preload() -> None:
    """Starts this program again with the shim, unless it has it; ends it where there is none."""
    if shim.loaded() is not None:
        return
    if reason := shim.why_not():
        print(f"skipped: {reason}")
        sys.exit(0)
    library = shim.build(Path(tempfile.mkdtemp(prefix="bytemill-shim-")))
    settings = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "faults", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **settings})


def main() -> None:
    options = arguments()
    preload()
    warm.import_everything(torch=not options.no_torch)
    learns = not options.no_torch
    results: dict[str, object] = {}
    began = time.perf_counter()
    for part in PARTS if options.part == "all" else [options.part]:
        if part == "inject":
            results[part] = inject.inject(
                options.only,
                options.situation,
                options.fault,
                options.at,
                learns=learns,
                per_command=options.calls,
                say=_say,
            )
        elif part == "kill":
            results[part] = kill.kill(
                options.only, options.signals, options.seed, learns=learns, say=_say
            )
        else:
            results[part] = mutate.mutate(
                options.only,
                options.mutations,
                options.seed,
                options.at,
                learns=learns,
                say=_say,
            )
    findings = [f for part in results.values() for command in part.values() for f in command["findings"]]  # type: ignore[attr-defined]
    _report(findings)
    if options.save:
        machine = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
        about = {"machine": machine, "seconds": round(time.perf_counter() - began)}
        RESULTS.write_text(json.dumps({"about": about, **results}, indent=2) + "\n")
    sys.exit(1 if findings else 0)


def _say(line: str) -> None:
    print(line, flush=True)


def _report(findings: list[dict[str, str]]) -> None:
    """Every kind of finding once, with how often and how to see it again."""
    kinds: dict[tuple[str, str], list[dict[str, str]]] = {}
    for finding in findings:
        command = finding["reproduce"].split("--only ")[1].split()[0]
        kinds.setdefault((command, finding["what"].split(":")[0]), []).append(finding)
    for (command, what), same in sorted(kinds.items()):
        print(f"\n{command}: {what} ({len(same)} times)")
        print(f"  {same[0]['what']}")
        print(f"  python -m faults {same[0]['reproduce']}")
        last = same[0]["detail"].strip().splitlines()[-1:]
        print(*(f"  | {line}" for line in last), sep="\n")


if __name__ == "__main__":
    main()
