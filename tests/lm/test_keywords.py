"""Options as keywords: the same fields as the configs, known to editors, and never misspelled."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

pytest.importorskip("torch")

import bytemill
import small_lm
from bytemill import lm
from bytemill.lm import keywords


def test_the_typed_keywords_are_the_fields_of_the_configs() -> None:
    both = get_type_hints(lm.ModelConfig) | get_type_hints(lm.TrainConfig)
    assert get_type_hints(keywords.ConfigOptions) == both
    assert get_type_hints(keywords.SamplingOptions) == get_type_hints(lm.Sampling)


def test_the_typed_choices_are_complete() -> None:
    assert get_args(keywords.PresetName) == tuple(lm.PRESETS)


@pytest.mark.parametrize("function", [lm.train, lm.find_lr, lm.sweep])
def test_signatures_list_every_field(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(get_type_hints(keywords.ConfigOptions)) < set(parameters)
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    required = [p.name for p in parameters.values() if p.default is p.empty]
    assert required == ["tokens", "out", "space"][: len(required)]


@pytest.mark.parametrize("function", [lm.generate_ids, lm.stream_text, lm.generate_text])
def test_signatures_list_sampling(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert {"temperature", "top_k", "seed", "n_samples", "use_cache"} < set(parameters)


# The course prescribes these positions; layers and optimizers follow torch.
POSITIONAL = {
    "constant_schedule(warmup)",
    "get_batch(device)",
    "load_checkpoint(model)",
    "load_checkpoint(optimizer)",
    "scaled_dot_product_attention(mask)",
    "softmax(dim)",
}


def test_other_options_are_keyword_only() -> None:
    functions = [name for name in lm.__all__ if inspect.isfunction(getattr(lm, name))]
    assert len(functions) > 20
    found = {
        f"{name}({parameter.name})"
        for name in (*functions, "ModelConfig", "TrainConfig", "Sampling", "Windows", "DecodeBatch")
        for parameter in inspect.signature(getattr(lm, name)).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and parameter.default is not parameter.empty
    }
    assert found == POSITIONAL


def test_misspelled_options_are_refused(tmp_path: Path) -> None:
    calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
        (lm.train, (tmp_path, tmp_path / "run"), {"stesp": 3}, "steps"),
        (lm.train, (tmp_path, tmp_path / "run"), {"learning_rate": 3}, "lr"),
        (lm.find_lr, (tmp_path,), {"num_layer": 3}, "num_layers"),
        (lm.sweep, (tmp_path, tmp_path / "out", {"lr": [1.0]}), {"warm_up": 3}, "warmup"),
        (small_lm.model().generate, ([1],), {"temprature": 0}, "temperature"),
    ]
    for function, arguments, options, meant in calls:
        with pytest.raises(bytemill.ConfigError) as caught:
            function(*arguments, **options)
        assert caught.value.hint == f"did you mean {meant}?"
    assert list(tmp_path.iterdir()) == []


CHECKED = """
from bytemill import lm

lm.train("tokens", "run", steps=300, model="laptop", norm="post", dtype="float32")
lm.train("tokens", "run", train=lm.TrainConfig(lr=1e-3))
lm.sweep("tokens", "out", {"lr": [1e-3, 1e-2]}, steps=200)
lm.find_lr("tokens", steps=50)

lm.train("tokens", "run", stesp=300)
lm.train("tokens", "run", steps="300")
lm.train("tokens", "run", model="labtop")
lm.train("tokens", "run", optimizer="adam")
lm.find_lr("tokens", d_modle=50)
lm.evaluate("run", "tokens", step="newest")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_type_checker_knows_the_keywords(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(CHECKED)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run([*command, "user.py"], cwd=tmp_path, capture_output=True, text=True)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    wrong = [n for n, line in enumerate(CHECKED.split("\n"), 1) if line][-6:]
    assert lines == wrong, done.stdout + done.stderr
