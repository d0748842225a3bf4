"""The map of the code: `python tests/code_map.py >docs/map.md`, as `make format` does.

Lists every module with the first sentence of its head, so that the map cannot contradict the code.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import module_graph

ROOT = module_graph.ROOT
INTRODUCTION = """\
# Map of the code

Every module, with the first sentence of its head. `make format` writes this page from the code. The
rooms of the core are in the order in which text passes through them.
[CONTRIBUTING.md](../CONTRIBUTING.md) explains how to change something."""


def page() -> Iterator[str]:
    yield INTRODUCTION
    rooms = {room: number for number, room in enumerate(module_graph.ROOMS)}
    core = module_graph.modules(ROOT / "src")
    order = sorted(core, key=lambda module: (rooms.get(module[0], -1) if module else -1, module))
    yield from section("The Rust core", {module: core[module] for module in order})
    yield from section("CPU kernels of the language model", rust("kernels/src"))
    yield from section("The Python package", python(ROOT / "python" / "bytemill"))


def rust(directory: str) -> dict[module_graph.Module, Path]:
    found = module_graph.modules(ROOT / directory)
    return {module: found[module] for module in sorted(found)}


def python(package: Path) -> dict[module_graph.Module, Path]:
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return {module: found[module] for module in sorted(found)}


def section(title: str, modules: dict[module_graph.Module, Path]) -> Iterator[str]:
    yield f"\n## {title}\n"
    for module, path in modules.items():
        indent = "    " * (len(module) - 1)
        name = module[-1] if module else path.name
        link = f"[`{name}`](../{path.relative_to(ROOT).as_posix()})"
        yield f"{indent}- {link}: {summary(path)}"


def summary(path: Path) -> str:
    """The first sentence of a module's head."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        head = "\n".join(line[3:].strip() for line in re.findall(r"^//!.*$", text, re.MULTILINE))
    else:
        head = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(head.split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]
    # Links of rustdoc lead nowhere here.
    return re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", sentence)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    print("\n".join(page()))
