"""The notebooks and scripts of examples/ run; notebooks are stored without outputs."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import pytest

import bytemill

TOP = Path(__file__).parents[1]
EXAMPLES = TOP / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_all_three_notebooks_are_linked() -> None:
    page = (TOP / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    for path in [*NOTEBOOKS, *EXAMPLES.glob("*.py")]:
        assert f"(../examples/{path.name})" in page, path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    if path.name == "language_model.ipynb":
        pytest.importorskip("torch")
        pytest.importorskip("matplotlib")
    # The models of the examples are too small for a second thread.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=200, kernel_name="python3", resources=resources
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs
    # Nothing is printed to stderr: progress is a display, and there are no warnings.
    assert [output for output in outputs if output.get("name") == "stderr"] == []


def test_encode_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import numpy as np

    texts = ["the cat sat", "", "on the <|endoftext|> mat"]
    tokenizer = bytemill.train_tokenizer(iter(texts * 3), vocab_size=262)
    tokenizer.save(tmp_path / "tokenizer.json")
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = tmp_path / "ids.npy"
    script = str(EXAMPLES / "encode_dataset.py")
    arguments = [script, str(tmp_path / "tokenizer.json"), str(out), str(lines)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(script, run_name="__main__")
    end = tokenizer.special_tokens["<|endoftext|>"]
    expected = [i for text in texts for i in [*tokenizer.encode(text, special="none"), end]]
    ids = np.load(out)
    assert ids.dtype == np.uint16
    assert ids.tolist() == expected
    assert f"{len(expected)} ids (uint16)" in capsys.readouterr().out


def test_training_loop(tmp_path: Path) -> None:
    pytest.importorskip("torch").set_num_threads(1)
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat, the dog sat on the log\n" * 300)
    tokenizer = bytemill.train_tokenizer(text, vocab_size=268)
    tokenizer.encode_files(text, tmp_path / "tokens")
    script = runpy.run_path(str(EXAMPLES / "training_loop.py"))
    losses = script["train"](os.fspath(tmp_path / "tokens"), 30)
    assert len(losses) == 30
    assert losses[-1] < 0.5 * losses[0]
