"""The rooms of the Rust core: who knows whom, and what the map says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import module_graph

TOP = Path(__file__).resolve().parent.parent
CORE = {"src": TOP / "src", "kernels/src": TOP / "kernels" / "src"}


@pytest.mark.parametrize("name", CORE)
def test_no_two_modules_need_each_other(name: str) -> None:
    assert module_graph.circles(module_graph.graph(CORE[name])) == []


def test_no_room_knows_one_to_its_right() -> None:
    edges = module_graph.graph(CORE["src"])
    assert {module[0] for module in edges if module} == set(module_graph.ROOMS)
    assert module_graph.upward(edges) == []


def test_circles_and_upward_edges_are_found(tmp_path: Path) -> None:
    """The two tests above would see what they look for."""
    for name, code in {
        "lib.rs": "mod base;\nmod text;\n",
        "base/mod.rs": "pub mod a;\npub mod b;\npub use b::passed;\n",
        "base/a.rs": "use super::passed;\nuse crate::text::cut;\npub fn one() {}\n",
        "base/b.rs": "pub fn passed() { super::a::one() }\n",
        "text/mod.rs": "// use crate::base::a::one;\npub fn cut() {}\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    edges = module_graph.graph(tmp_path)
    assert module_graph.circles(edges) == [["base::a", "base::b"]]
    assert module_graph.upward(edges) == ["base::a uses text"]


def test_the_picture_is_that_of_the_code() -> None:
    drawn = (TOP / "docs" / "modules.svg").read_text(encoding="utf-8")
    assert drawn == module_graph.picture(CORE["src"]), "make docs/modules.svg again: make format"


@pytest.mark.parametrize("name", CORE)
def test_the_map_names_every_module_and_no_other(name: str) -> None:
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = re.search(r"```tree\n(.*?)```", text, re.DOTALL)
    assert tree is not None
    named, above = set(), []
    for line in tree[1].splitlines():
        match = re.match(r"( *)(\S+)", line)
        assert match is not None
        above[len(match[1]) // 2 :] = [match[2]]
        named.add("/".join(above))
    prefix = name + "/"
    listed = {entry.removeprefix(prefix) for entry in named if entry.startswith(prefix)}
    # Rooms, and what is directly in them.
    modules = {"/".join(module[:2]) for module in module_graph.modules(CORE[name]) if module}
    rooms = {module.split("/")[0] for module in modules}
    assert listed == modules | rooms | {"lib"}
