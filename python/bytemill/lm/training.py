"""The training loop: tokens → a run.

A step is determined by the config and its number: the batch, the learning rate; no hidden state is
drawn from. So a run that was killed and resumed computes the same numbers as one that was not, to
the last bit on a CPU.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from .._numbers import duration, size
from ..errors import BytemillError, CheckpointError, ConfigError, TrainingError
from ..progress import Progress, StepOption
from . import devices, presets
from .config import ModelConfig, TrainConfig
from .data import check_length
from .evaluation import Evaluation, Evaluator, token_lengths
from .generate import generate_text
from .keywords import ConfigOptions, PresetName, TokenDtype, with_fields
from .optim import learning_rate
from .parallel import World, joined, ranks_of_environment
from .plan import costs
from .run.checkpoint import step_directories
from .run.output_directory import tidy
from .run.resuming import Start, find_start
from .run.sources import Sources
from .run.writer import RunWriter
from .trainer import Setup, open_data, prepare

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..tokenizer import Tokenizer

__all__ = ["Divergence", "TrainResult", "train"]


@dataclass(frozen=True)
class TrainResult:
    """The outcome of training.

    Attributes:
        run: its directory.
        step: updates done.
        loss: of the last step, on its own batch.
        evaluation: of the last weights; None without held-out tokens.
        tokens: tokens trained on in this session.
        seconds: duration of this session.
        steps: updates of the whole run.
        total_tokens: tokens trained on since the first step of the run.
    """

    run: Path
    step: int
    loss: float
    evaluation: Evaluation | None
    tokens: int
    seconds: float
    steps: int
    total_tokens: int


@with_fields(ConfigOptions)
def train(
    tokens: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    token_dtype: TokenDtype = "uint16",
    model: ModelConfig | PresetName | None = None,
    train: TrainConfig | None = None,
    config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    start_from: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    progress: StepOption = None,
    **options: Unpack[ConfigOptions],
) -> TrainResult:
    """Trains a model on tokens and writes a run.

    Args:
        tokens: a directory of tokens, a `.npy`, or raw ids such as nanoGPT's `train.bin`.
        out: the run's directory.
        tokenizer: the tokenizer of the tokens, a file, or the name of an encoding such as
            `cl100k_base`; None looks in their directory and beside it.
        val: tokens to evaluate on; None for the split `val`, or the last share of the tokens.
        token_dtype: type of raw ids.
        model: a config, or the name of a preset (`bytemill.lm.PRESETS`), which takes the vocabulary
            size of the tokens. None for the preset `laptop`.
        train: how to train; None for the settings of the preset.
        config: a TOML file, or its keys; they override the preset, not `model` and `train`.
        start_from: a run whose weights and shape to start from (fine-tuning); None for new weights.
        resume: resume the run in `out`, if there is one.
        overwrite: replace the run in `out`.
        force: train even if the run is predicted not to fit into memory.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer]; a function gets each
            `StepReport`.
        options: fields of `ModelConfig` and `TrainConfig`, which override all of the above.
    """
    if resume and overwrite:
        raise ConfigError("resume=True contradicts overwrite=True", "give one of them")
    run, preset = Path(out), model if isinstance(model, str) else None
    rank, n_ranks = ranks_of_environment()
    report = Progress(progress if rank == 0 else False)
    if rank == 0:
        # With several ranks, none may fail before all are connected: the others would wait for it.
        with nullcontext() if n_ranks == 1 else suppress(CheckpointError):
            tidy(run)
    start = find_start(
        run,
        preset,
        presets.config_keys(config),
        presets.given(model, train) | options,
        start_from=start_from,
        resume=resume,
        overwrite=overwrite,
    )
    sources, model_config, train_config = open_data(
        tokens,
        start.keys,
        tokenizer=start.tokenizer if tokenizer is None else tokenizer,
        val=val,
        token_dtype=token_dtype,
    )
    start.check(sources)
    check_length(len(sources.train), model_config.context_length)
    setup = prepare(model_config, train_config, n_ranks=n_ranks, force=force)
    # If the first rank cannot lock the run, the others lose their connection to it.
    with report, joined(setup.plan.device) as world, start.locked(world.first):
        return _Session(start, sources, setup, world, report).go()


# --- the loop -----------------------------------------------------------------------------------


class _Session:
    """Training in one process, from the first step or a checkpoint to the last step."""

    def __init__(
        self, start: Start, sources: Sources, setup: Setup, world: World, report: Progress
    ) -> None:
        self.sources, self.config, self.plan = sources, setup.train, setup.plan
        self.memory, self.world, self.report = setup.memory, world, report
        world.check_same("the config", json.dumps([setup.model.to_json(), setup.train.to_json()]))
        world.check_same("the tokens", json.dumps(sources.facts | {"path": "", "val": ""}))
        self.trainer = setup.trainer(sources.train, world)
        self.model = self.trainer.model
        self.evaluator = self._evaluator()
        self.files = RunWriter(start, self.trainer, sources)
        self.step = 0

    def go(self) -> TrainResult:
        self.step = self.files.open(self.report)
        try:
            if self.step < self.config.steps:
                self._announce()
            with _Interrupt(enabled=self.world.size == 1) as interrupt:
                return self._loop(interrupt)
        finally:
            self.files.close()

    def _loop(self, interrupt: _Interrupt) -> TrainResult:
        config, trainer, world = self.config, self.trainer, self.world
        began, first_step, divergence = time.perf_counter(), self.step, Divergence()
        loss, evaluation, pace = math.nan, None, None
        n_tokens = config.batch_size * self.model.config.context_length
        flops = costs.training_flops(self.model.config, config.batch_size)
        self.report.begin("train", self.step)
        while self.step < config.steps:
            step_began = time.perf_counter()
            lr = learning_rate(config, self.step)
            loss = world.sum([trainer.forward_backward(self.step)])[0] / world.size
            self._check(divergence(loss))
            norm = trainer.update(lr)
            self._check(None if math.isfinite(norm) else f"the norm of the gradients is {norm}")
            self.step += 1
            seconds = time.perf_counter() - step_began
            # Smoothed: a pause of the machine should not change the estimates much.
            pace = max(1e-9, seconds if pace is None else 0.8 * pace + 0.2 * seconds)
            fields: dict[str, Any] = {
                "loss": loss,
                "lr": lr,
                "grad_norm": norm,
                "tokens_per_s": n_tokens / pace,
                "mfu": flops / pace / (self.matmul_rate * world.size),
                "memory": devices.peak_memory(self.plan.device),
            }
            self.files.record(self.step, **fields, seconds=seconds)
            eta = (config.steps - self.step) * pace
            self.report.step(self.step, config.steps, eta=eta, **fields)
            evaluation = self._after_step()
            if interrupt.requested and self.step < config.steps:
                self.files.save(self.step)
                self.report.say(
                    f"stopped at step {self.step:,} and saved a checkpoint: resume the run to "
                    "continue"
                )
                raise KeyboardInterrupt
        world.wait()
        return TrainResult(
            run=self.files.run,
            step=self.step,
            loss=loss,
            evaluation=evaluation,
            tokens=(self.step - first_step) * n_tokens,
            seconds=time.perf_counter() - began,
            steps=config.steps,
            total_tokens=self.step * n_tokens,
        )

    def _check(self, problem: str | None) -> None:
        if problem is None:
            return
        steps = step_directories(self.files.run)
        kept = f"the last good checkpoint is {steps[-1]}" if steps else "there is no checkpoint yet"
        raise TrainingError(
            f"step {self.step + 1}: {problem}; {kept}",
            f"try an lr below {self.config.lr:g} or a warmup longer than "
            f"{self.config.warmup_steps} steps; clip=1.0 and beta2=0.95 also help",
        )

    # --- after a step: evaluation, sample, checkpoint ---------------------------------------------

    def _after_step(self) -> Evaluation | None:
        config, last = self.config, self.step == self.config.steps
        evaluation = loss = None
        if self.evaluator is not None and (last or self.step % config.eval_steps == 0):
            evaluation = self._evaluate(self.evaluator)
            loss = evaluation.loss
        if config.sample_steps and (last or self.step % config.sample_steps == 0):
            self._sample()
        improved = loss is not None and loss < self.files.best_loss
        if improved or last or self.step % config.checkpoint_steps == 0:
            self.files.save(self.step, loss)
        if loss is not None and improved:
            self.files.set_best(self.step, loss)
        return evaluation

    def _evaluate(self, evaluator: Evaluator) -> Evaluation:
        found = evaluator(self.trainer.shared, self.world, self.plan.autocast())
        text = f"eval    step {self.step:,}  loss {found.loss:.4f}  "
        text += f"perplexity {found.perplexity:.2f}"
        fields = {"val_loss": found.loss, "val_perplexity": found.perplexity}
        if found.bits_per_byte is not None:
            text += f"  {found.bits_per_byte:.4f} bits per byte"
            fields["val_bits_per_byte"] = found.bits_per_byte
        self.report.event("evaluation", text, step=self.step, **fields)
        self.files.record(self.step, **fields)
        return found

    def _sample(self) -> None:
        tokenizer, prompt = self.sources.tokenizer, self.config.sample_prompt
        sharded = self.config.parallel == "fsdp" and self.world.size > 1
        if tokenizer is None or sharded or not self.world.first:
            return
        self.model.eval()
        try:
            (text,) = generate_text(
                self.model,
                tokenizer,
                prompt,
                max_tokens=self.config.sample_tokens,
                temperature=0.8,
                top_k=200,
                seed=self.config.seed,
            )
        except BytemillError as error:
            self.report.say(f"note: no sample: {error.message}")
            return
        finally:
            self.model.train()
        shown = json.dumps(prompt + text, ensure_ascii=False)
        self.report.event("sample", f"sample  {shown}", step=self.step, sample=prompt + text)
        self.files.record(self.step, sample=prompt + text)

    # --- before the first step --------------------------------------------------------------------

    def _evaluator(self) -> Evaluator | None:
        held_out, config = self.sources.held_out, self.model.config
        if held_out is None or not self.config.eval_steps:
            return None
        context, n_windows = config.context_length, self.config.eval_windows
        if len(held_out) <= context:
            self.report.say(
                f"note: no evaluation: {len(held_out):,} tokens are held out, "
                f"but a context of {context:,} needs {context + 1:,}"
            )
            return None
        tokenizer, at_once = self.sources.tokenizer, min(self.trainer.micro, n_windows)
        lengths = None if tokenizer is None else token_lengths(tokenizer, config.vocab_size)
        return Evaluator(held_out, context, n_windows, lengths, at_once, config.vocab_size)

    def _announce(self) -> None:
        config, model, say = self.config, self.model.config, self.report.say
        for reason in self.plan.reasons:
            say(reason)
        if self.sources.tokenizer is None:
            say(f"note: {_without_tokenizer(self.sources.facts)}")
        self.trainer.compile(self.step, self.report)
        self.matmul_rate = devices.matmul_rate(self.plan.device, self.plan.dtype)
        left = config.steps - self.step
        seconds = self.trainer.seconds_per_step(self.step) * left
        parameters = costs.n_parameters(model)
        ranks = "" if self.world.size == 1 else f", {self.world.size} ranks ({config.parallel})"
        say(
            f"model   {parameters:,} parameters, {model.num_layers} layers of {model.d_model}, "
            f"context {model.context_length}, {model.vocab_size:,} ids{ranks}"
        )
        epochs = config.steps * config.batch_size / self.trainer.windows.per_epoch
        say(
            f"tokens  {len(self.sources.train):,} to train on, {self.sources.facts['held_out']:,} "
            f"held out; {config.steps:,} steps are {epochs:.2g} epochs"
        )
        memory = self.memory
        where = "" if self.plan.device.type == "cpu" else f" on {self.plan.device}"
        self.report.event(
            "predicted",
            f"expect  about {size(memory.peak)} of memory{where} ({memory.parts()}) "
            f"and {duration(seconds)} for {left:,} steps",
            memory=memory.peak,
            base_memory=memory.base,
            seconds=seconds,
            parameters=parameters,
        )
        # Of this session: a resumed run may be on another machine.
        self.files.record(
            self.step,
            predicted_memory=memory.peak,
            predicted_base_memory=memory.base,
            predicted_seconds=seconds / left,
        )


def _without_tokenizer(facts: Mapping[str, Any]) -> str:
    """What a run without a tokenizer lacks, and how to give it one."""
    made = facts["fingerprint"]
    which = "that the tokens were encoded with" + (f" (fingerprint {made[:12]}…)" if made else "")
    return (
        "no tokenizer found in or beside the tokens, so the run has none: no samples, no bits per "
        f"byte, and generate will need one. Give the one {which}: -t tokenizer.json"
    )


# --- reasons to stop ----------------------------------------------------------------------------

# A smoothed loss this far above its minimum, for this many steps, does not recover by itself.
DIVERGED_BY = 1.5
DIVERGED_FOR = 50


class Divergence:
    """Detects a loss that has diverged; called with the loss of each step.

    Args:
        patience: number of steps that the loss may stay far above its minimum.
    """

    def __init__(self, patience: int = DIVERGED_FOR) -> None:
        self.patience = patience
        self.mean: float | None = None
        self.lowest = math.inf
        self.above = 0

    def __call__(self, loss: float) -> str | None:
        """The problem, if there is one."""
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
        self.lowest = min(self.lowest, self.mean)
        self.above = self.above + 1 if self.mean > self.lowest + DIVERGED_BY else 0
        if self.above < self.patience:
            return None
        return (
            f"the loss diverged: about {self.mean:.2f} for {self.above} steps, "
            f"after a minimum of {self.lowest:.2f}"
        )


class _Interrupt:
    """Ctrl-C ends a run after the current step, with a checkpoint; a second one ends it at once."""

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.requested = enabled, False
        self._before: Any = None

    def __enter__(self) -> _Interrupt:
        # Only the main thread may set handlers, and a caller's SIG_IGN is respected.
        with suppress(ValueError):
            if self.enabled and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
