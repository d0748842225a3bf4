"""Which Rust module uses which: `python tests/module_graph.py` prints it, tests check it.

    python tests/module_graph.py          all edges; cycles and upward edges go to stderr
    python tests/module_graph.py --svg    the rooms and what they use, as docs/modules.svg

A room of the core may use only the rooms to its left, and modules inside a room must not depend
on each other in a cycle. `use` lines and paths are read with regular
expressions; a name that a `mod.rs` merely passes on (`pub use`) counts as its origin's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# From left to right; `naive` is the oracle of tests.
ROOMS = ["base", "text", "corpus", "learn", "tokenizer", "tokens", "naive", "python"]

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]


def modules(src: Path) -> dict[Module, Path]:
    """The files of a crate without its tests, by module path."""
    found = {}
    for path in sorted(src.rglob("*.rs")):
        parts = path.relative_to(src).with_suffix("").parts
        if "tests" in parts:
            continue
        found[parts[:-1] if parts[-1] in ("mod", "lib") else parts] = path
    return found


def code(path: Path) -> str:
    """A file without comments, strings and its test module, which is last if it is in the file."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    # Indented items belong to a module inside the file.
    text = re.sub(r"^( +use )super::", r"\1self::", text, flags=re.MULTILINE)
    text = re.split(r"#\[cfg\((?:all\()?test[^\n]*\s+mod \w+ {", text)[0]
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)


def expanded(tree: str) -> list[str]:
    """`a::{b, c::{d}}` as `a::b`, `a::c::d`."""
    start = tree.find("{")
    if start < 0:
        return [tree.split(" as ")[0].strip()]
    depth, pieces, last = 0, [], start + 1
    for at in range(start, len(tree)):
        if tree[at] == "{":
            depth += 1
        elif tree[at] == "}":
            depth -= 1
            if depth == 0:
                pieces.append(tree[last:at])
                break
        elif tree[at] == "," and depth == 1:
            pieces.append(tree[last:at])
            last = at + 1
    prefix = tree[:start].strip()
    return [prefix + path for piece in pieces if piece.strip() for path in expanded(piece.strip())]


USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.DOTALL)
INLINE = re.compile(r"\b((?:crate|super)(?:::\w+)+)")


def absolute(path: str, here: Module, children: set[str]) -> Module | None:
    """A path from the root of the crate; None if it is outside of the crate."""
    parts = [part.strip() for part in path.split("::")]
    if parts[0] == "crate":
        return tuple(parts[1:])
    if parts[0] == "self":
        return (*here, *parts[1:])
    base = here
    while parts and parts[0] == "super":
        base, parts = base[:-1], parts[1:]
    if base != here:
        return (*base, *parts)
    return (*here, *parts) if parts[0] in children else None


def graph(src: Path) -> Graph:
    """The edges between the modules of a crate."""
    files = modules(src)
    children: dict[Module, set[str]] = {module: set() for module in files}
    for module in files:
        if module and module[:-1] in children:
            children[module[:-1]].add(module[-1])
    texts = {module: code(path) for module, path in files.items()}
    passed_on: dict[Module, Module] = {}
    for module, text in texts.items():
        for public, tree in USE.findall(text):
            if public and children[module]:
                for path in expanded(tree):
                    origin = absolute(path, module, children[module])
                    if origin:
                        name = tree.split(" as ")[-1].strip() if " as " in tree else origin[-1]
                        passed_on[(*module, name)] = origin

    def owner(path: Module) -> Module | None:
        for n in range(len(path), 0, -1):
            if path[:n] in files:
                return path[:n]
            if path[:n] in passed_on:
                return owner(passed_on[path[:n]] + path[n:])
        return None

    edges: Graph = {module: set() for module in files}
    for module, text in texts.items():
        paths = []
        for public, tree in USE.findall(text):
            if not (public and children[module]):
                paths += expanded(tree)
        paths += INLINE.findall(USE.sub("", text))
        if children[module]:
            names = "|".join(sorted(children[module]))
            paths += re.findall(rf"(?<![\w:.])((?:{names})::\w+)", USE.sub("", text))
        for path in paths:
            target = absolute(path, module, children[module])
            found = owner(target) if target else None
            if found is not None and found != module and found != ():
                edges[module].add(found)
    return edges


def upward(edges: Graph) -> list[str]:
    """Uses of a room further to the right."""
    wrong = []
    for module, targets in edges.items():
        for target in sorted(targets):
            if module and ROOMS.index(target[0]) > ROOMS.index(module[0]):
                wrong.append(f"{'::'.join(module)} uses {'::'.join(target)}")
    return wrong


def circles(edges: Graph) -> list[list[str]]:
    """Cycles of modules, by Tarjan's algorithm."""
    number: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[str]] = []

    def visit(module: Module) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for target in edges[module]:
            if target not in number:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], number[target])
        if low[module] == number[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted("::".join(one) for one in group))

    for module in edges:
        if module not in number:
            visit(module)
    return found


BOX, GAP, LINE = 190, 46, 15


def picture(src: Path) -> str:
    """The rooms from left to right with their modules, and arrows to what each uses."""
    edges = graph(src)
    rooms = [room for room in ROOMS if any(module[:1] == (room,) for module in edges)]
    inside = {
        room: sorted({module[1] for module in edges if module[0:1] == (room,) and len(module) > 1})
        for room in rooms
    }
    uses = {
        (module[0], target[0])
        for module, targets in edges.items()
        for target in targets
        if module and module[0] != target[0]
    }
    height = 60 + LINE * max(map(len, inside.values()))
    left = {room: 10 + number * (BOX + GAP) for number, room in enumerate(rooms)}
    arcs = sorted(uses, key=lambda use: (left[use[0]] - left[use[1]], use))
    depth = height + 24 + 22 * len(rooms)
    width = 10 + len(rooms) * (BOX + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {depth}" '
        f'font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{depth}" fill="#fff"/>',
    ]
    for room in rooms:
        x = left[room]
        out.append(
            f'<rect x="{x}" y="10" width="{BOX}" height="{height}" rx="6" fill="#f2f5f9" '
            f'stroke="#8aa"/><text x="{x + 12}" y="32" font-size="15" '
            f'font-weight="bold">{room}</text>'
        )
        for row, module in enumerate(inside[room]):
            out.append(f'<text x="{x + 12}" y="{54 + LINE * row}">{module}</text>')
    for user, used in arcs:
        span = rooms.index(user) - rooms.index(used)
        start = left[user] + 30 + 14 * (len(rooms) - span)
        end = left[used] + BOX - 20 - 14 * span
        low = height + 20 + 22 * span
        out.append(
            f'<path d="M{start} {height + 10}C{start} {low} {end} {low} {end} {height + 14}" '
            f'fill="none" stroke="#555" marker-end="url(#tip)"/>'
        )
    return "\n".join([*out, "</svg>", ""])


def main() -> int:
    if "--svg" in sys.argv:
        print(picture(ROOT / "src"), end="")
        return 0
    wrong = 0
    for src in (ROOT / "src", ROOT / "kernels" / "src"):
        edges = graph(src)
        for module, targets in sorted(edges.items()):
            if module and targets:
                print("::".join(module), "->", ", ".join("::".join(t) for t in sorted(targets)))
        faults = [f"circle: {', '.join(group)}" for group in circles(edges)]
        if src.parent == ROOT:
            faults += [f"upward: {edge}" for edge in upward(edges)]
        for fault in faults:
            print(fault, file=sys.stderr)
        wrong += len(faults)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
