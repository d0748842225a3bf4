"""The rooms of the Rust core: their dependencies, and the map of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import code_map
import module_graph

TOP = Path(__file__).resolve().parent.parent
CORE = {"src": TOP / "src", "kernels/src": TOP / "kernels" / "src"}


@pytest.mark.parametrize("name", CORE)
def test_no_two_modules_depend_on_each_other(name: str) -> None:
    assert module_graph.circles(module_graph.graph(CORE[name])) == []


def test_no_room_uses_one_to_its_right() -> None:
    edges = module_graph.graph(CORE["src"])
    assert {module[0] for module in edges if module} == set(module_graph.ROOMS)
    assert module_graph.upward(edges) == []


def test_cycles_and_upward_edges_are_found(tmp_path: Path) -> None:
    """The two tests above can fail."""
    for name, code in {
        "lib.rs": "mod base;\nmod text;\n",
        "base/mod.rs": "pub mod a;\n#[cfg(test)]\nmod tests;\npub mod b;\npub use b::passed;\n",
        "base/a.rs": "#[cfg(test)]\nfn test() {}\nuse super::passed;\nuse crate::text::cut;\n",
        "base/b.rs": "pub fn passed() { super::a::one() }\n",
        "text/mod.rs": "// use crate::base::a::one;\nmod c {\n    use super::cut;\n}\n",
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


def test_the_map_is_that_of_the_code() -> None:
    written = (TOP / "docs" / "map.md").read_text(encoding="utf-8")
    made = "\n".join([*code_map.page(), ""])
    assert written == made, "make docs/map.md again: make format"


def test_every_module_is_in_the_map_with_a_sentence() -> None:
    written = (TOP / "docs" / "map.md").read_text(encoding="utf-8")
    entries = re.findall(r"^ *- \[`.+`\]\(\.\./(.+?)\): (.*)$", written, re.MULTILINE)
    files = [path for src in CORE.values() for path in module_graph.modules(src).values()]
    files += (TOP / "python").rglob("*.py")
    assert sorted(path for path, _ in entries) == sorted(
        path.relative_to(TOP).as_posix() for path in files
    )
    assert [path for path, sentence in entries if not sentence.endswith(".")] == []


def test_the_first_sentence_of_a_head_is_its_summary(tmp_path: Path) -> None:
    heads = {
        "a.rs": "//! Tables of [`Spec`](crate::spec::Spec)\n//! and more. The rest.\nfn f() {}\n",
        "b.py": '"""Tables of `Spec` and more.\n\nThe rest.\n"""\n',
    }
    for name, text in heads.items():
        path = tmp_path / name
        path.write_text(text)
        assert code_map.summary(path) == "Tables of `Spec` and more."
