"""The training loop: tokens → a run.

What a step does follows from the config and the number of the step: the order of samples, the
learning rate, nothing is drawn from a hidden state. So a run that is killed and resumed goes
through the same numbers as one that was not, to the last bit on a CPU.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import __version__
from .._numbers import duration, size
from ..errors import BytemillError, CheckpointError, ConfigError, TrainingError
from ..progress import Progress, StepOption, reporter
from . import devices, presets
from .config import ModelConfig, TrainConfig
from .data import Sources, check_length, open_sources
from .evaluation import Evaluation, Evaluator, token_lengths
from .generate import generate_text
from .optim import learning_rate
from .parallel import World, joined, ranks_of_environment
from .plan import costs
from .run import checkpoint
from .run.directory import (
    CONFIG,
    TOKENIZER,
    best_step,
    clear_run,
    tokenizer_fingerprint,
    write_best,
    write_config,
)
from .run.metrics import Metrics
from .run.placing import tidy, writing
from .run.resuming import (
    check_last_step,
    check_same_tokens,
    check_start_tokens,
    find_start,
    own_tokenizer,
    resumed_keys,
    start_keys,
    stored_config,
)
from .trainer import Clock, Setup, Stop, Watch, prepare

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

__all__ = ["TrainResult", "train"]


@dataclass(frozen=True)
class TrainResult:
    """What a run came to.

    Attributes:
        run: its directory.
        step: updates done.
        loss: of the last step, on its own batch.
        evaluation: of the last weights; None if nothing was held out.
        tokens: tokens that were trained on, in this session.
        seconds: of this session.
        steps: updates that the run is to have in all.
        total_tokens: tokens that the run was trained on since its first step.
    """

    run: Path
    step: int
    loss: float
    evaluation: Evaluation | None
    tokens: int
    seconds: float
    steps: int
    total_tokens: int


def train(
    tokens: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    val: str | os.PathLike[str] | None = None,
    token_dtype: str = "uint16",
    model: ModelConfig | str | None = None,
    train: TrainConfig | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    start_from: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    progress: StepOption = None,
    **options: Any,
) -> TrainResult:
    """Trains a model on tokens and writes a run.

    Args:
        tokens: a directory of tokens, a `.npy`, or raw ids such as nanoGPT's `train.bin`.
        out: the run's directory.
        tokenizer: of the tokens; None looks in their directory and beside it.
        val: tokens to evaluate on; None for a split of that name, or a share of the tokens.
        token_dtype: of raw ids.
        model: what the model is: a config, or the name of a preset (`bytemill.lm.PRESETS`), whose
            vocabulary is that of the tokens. None for the preset `laptop`.
        train: how it is trained; None for what the preset says.
        config: a TOML file, or its keys; they override the preset, not `model` and `train`.
        start_from: a run with whose weights and shape to begin (fine-tuning); None to draw weights.
        resume: resume the run in `out`, if there is one.
        overwrite: replace the run in `out`.
        force: train even if the run is predicted not to fit into memory.
        progress: as in [`train_tokenizer`][bytemill.train_tokenizer]; a function gets each
            `StepReport`.
        options: single fields of `ModelConfig` and `TrainConfig`, which override all of these.
    """
    if resume and overwrite:
        raise ConfigError("resume=True contradicts overwrite=True", "give one of them")
    run, preset = Path(out), model if isinstance(model, str) else None
    options = presets.given(model, train) | options
    rank, n_ranks = ranks_of_environment()
    report = reporter(progress if rank == 0 else False)
    file = presets.read_config(config)
    if rank == 0:
        # Of several ranks, none may give up before all have met: the others would wait for it.
        with nullcontext() if n_ranks == 1 else suppress(CheckpointError):
            tidy(run)
    stored = stored_config(run, resume, overwrite)
    start = find_start(start_from, stored, run)
    if stored is not None:
        keys = resumed_keys(stored, preset, dict(file or {}) | options)
    else:
        keys = presets.merged(preset, file, options)
        if start is not None:
            keys |= start_keys(start, dict(file or {}) | options)
    if tokenizer is None and stored is not None:
        tokenizer = own_tokenizer(run)
    elif tokenizer is None and start is not None:
        tokenizer = own_tokenizer(start.parent)
    sources = open_sources(
        tokens,
        tokenizer=tokenizer,
        val=val,
        val_fraction=presets.train_config(keys).val_fraction,
        vocab_size=keys.get("vocab_size"),
        token_dtype=token_dtype,
    )
    model_config, train_config = presets.resolve(keys, sources.vocab_size)
    if stored is not None:
        check_same_tokens(stored, sources)
        check_last_step(run, stored)
    elif start is not None:
        check_start_tokens(start, sources)
    check_length(len(sources.train), model_config.context_length)
    setup = prepare(model_config, train_config, n_ranks=n_ranks, force=force)
    with (
        report,
        joined(setup.plan.device) as world,
        _only_writer(run, world, stored, resume, overwrite),
    ):
        session = _Session(run, sources, setup, world, report, overwrite, start)
        return session.go(new=stored is None)


@contextmanager
def _only_writer(
    run: Path, world: World, stored: Mapping[str, Any] | None, resume: bool, overwrite: bool
) -> Iterator[None]:
    """The first rank's lock on the run; if it cannot have it, the others lose their connection."""
    if not world.first:
        yield
        return
    with writing(run):
        if stored_config(run, resume, overwrite) != stored:
            raise CheckpointError(
                f"{run}: another process wrote to it after this one started",
                "check the run, then start again",
            )
        yield


# --- the loop -----------------------------------------------------------------------------------


class _Session:
    """One sitting of a run, from its first step or a checkpoint to its last."""

    def __init__(
        self,
        run: Path,
        sources: Sources,
        setup: Setup,
        world: World,
        report: Progress,
        overwrite: bool,
        start: Path | None,
    ) -> None:
        self.run, self.sources, self.config, self.start = run, sources, setup.train, start
        self.plan, self.memory, self.world, self.report = setup.plan, setup.memory, world, report
        self.overwrite = overwrite
        world.check_same("the config", json.dumps([setup.model.to_json(), setup.train.to_json()]))
        world.check_same("the tokens", json.dumps(sources.facts | {"path": "", "val": ""}))
        self.trainer = setup.trainer(sources.train, world)
        self.model = self.trainer.model
        self.evaluator = self._evaluator()
        self.step = 0
        self.best = math.inf
        self.watch = Watch()
        self.stop = Stop(enabled=world.size == 1)

    def _evaluator(self) -> Evaluator | None:
        held_out, context = self.sources.held_out, self.model.config.context_length
        if held_out is None or not self.config.eval_steps:
            return None
        if len(held_out) <= context:
            self.report.say(
                f"note: no evaluation: {len(held_out):,} tokens are held out, "
                f"but a context of {context:,} needs {context + 1:,}"
            )
            return None
        vocab_size = self.model.config.vocab_size
        lengths = None
        if self.sources.tokenizer is not None:
            lengths = token_lengths(self.sources.tokenizer, vocab_size)
        at_once = max(1, min(self.trainer.micro, self.config.eval_windows))
        n_windows = self.config.eval_windows
        return Evaluator(held_out, context, n_windows, lengths, at_once, vocab_size)

    def go(self, new: bool) -> TrainResult:
        if self.start is not None and (new or not checkpoint.step_directories(self.run)):
            checkpoint.load_checkpoint(self.start, self.model)
        if self.world.first:
            self._prepare(new)
        self.world.wait()
        if not new:
            self._resume()
        metrics = None
        if self.world.first:
            metrics = Metrics(
                self.run,
                self.step,
                tensorboard=self.config.tensorboard,
                wandb=self.config.wandb,
            )
            for note in metrics.notes:
                self.report.say(f"note: {note}")
        if self.step < self.config.steps:
            self._announce()
        try:
            with self.stop:
                return self._loop(metrics)
        finally:
            if metrics is not None:
                metrics.close()

    def _prepare(self, new: bool) -> None:
        """The run's directory, with all but checkpoints."""
        if new and self.overwrite and (self.run / CONFIG).exists():
            clear_run(self.run)
        write_config(
            self.run,
            {
                "bytemill": __version__,
                "torch": torch.__version__,
                "model": self.model.config.to_json(),
                "train": self.config.to_json(),
                "tokens": self.sources.facts,
                "plan": self.plan.to_json(),
                "start_from": None if self.start is None else str(self.start),
            },
            None if (self.run / TOKENIZER).exists() else self.sources.tokenizer,
        )

    def _resume(self) -> None:
        steps = checkpoint.step_directories(self.run)
        if not steps:
            self.report.say("resume  no checkpoint yet: starting at step 0")
            return
        self.step = checkpoint.load_checkpoint(steps[-1], self.model, self.trainer.optimizers)
        best = best_step(self.run)
        if best is not None:
            self.best = best[1]
        # A process that was killed after it wrote the checkpoint may not have compared it any more.
        loss = checkpoint.read_step(steps[-1]).get("val_loss")
        if loss is not None and loss < self.best:
            self._remember_best(loss)
        self.report.say(f"resume  from step {self.step:,} ({steps[-1].name})")

    # --- words --------------------------------------------------------------------------------

    def _announce(self) -> None:
        config, model = self.config, self.model.config
        for reason in self.plan.reasons:
            self.report.say(reason)
        if self.sources.tokenizer is None:
            self.report.say(f"note: {_without_tokenizer(self.sources.facts)}")
        self.trainer.compile(self.step, self.report)
        self.rate = devices.matmul_rate(self.plan.device, self.plan.dtype)
        left = config.steps - self.step
        seconds = self.trainer.trial(self.step) * left
        parameters = costs.n_parameters(model)
        ranks = "" if self.world.size == 1 else f", {self.world.size} ranks ({config.parallel})"
        self.report.say(
            f"model   {parameters:,} parameters, {model.num_layers} layers of {model.d_model}, "
            f"context {model.context_length}, {model.vocab_size:,} ids{ranks}"
        )
        epochs = config.steps * config.batch_size / self.trainer.windows.per_epoch
        self.report.say(
            f"tokens  {len(self.sources.train):,} to train on, {self.sources.facts['held_out']:,} "
            f"held out; {config.steps:,} steps are {epochs:.2g} epochs"
        )
        memory = self.memory
        kind = "" if self.plan.device.type == "cpu" else f" on {self.plan.device}"
        self.report.event(
            "predicted",
            f"expect  about {size(memory.peak)} of memory{kind} ({memory.parts()}) "
            f"and {duration(seconds)} for {left:,} steps",
            memory=memory.peak,
            base_memory=memory.base,
            seconds=seconds,
            parameters=parameters,
        )

    # --- steps --------------------------------------------------------------------------------

    def _loop(self, metrics: Metrics | None) -> TrainResult:
        config = self.config
        began = time.perf_counter()
        first, loss, evaluation = self.step, math.nan, None
        n_tokens = config.batch_size * self.model.config.context_length
        flops = costs.training_flops(self.model.config, config.batch_size)
        clock = Clock()
        self.report.begin("train", self.step)
        while self.step < config.steps:
            clock.begin()
            lr = learning_rate(
                config.schedule,
                self.step,
                max_lr=config.lr,
                min_lr=config.last_lr,
                warmup=config.warmup_steps,
                decay=config.decay_steps,
                total=config.steps,
            )
            loss = self.trainer.forward_backward(self.step)
            loss = self.world.sum([loss])[0] / self.world.size
            self._check(loss)
            norm = self.trainer.update(lr)
            self._check(norm, "the norm of the gradients")
            self.step += 1
            seconds = clock.end()
            measures: dict[str, Any] = {
                "loss": loss,
                "lr": lr,
                "grad_norm": norm,
                "tokens_per_s": n_tokens / seconds,
                "mfu": flops / seconds / (self.rate * self.world.size),
                "memory": devices.peak_memory(self.plan.device),
            }
            if metrics is not None:
                metrics.write(step=self.step, **measures, seconds=clock.last)
            eta = (config.steps - self.step) * seconds
            self.report.step(self.step, config.steps, eta=eta, **measures)
            evaluation = self._between(metrics)
            if self.stop.asked and self.step < config.steps:
                self._save()
                self.report.say(
                    f"stopped at step {self.step:,} and saved a checkpoint: resume the run to "
                    "continue"
                )
                raise KeyboardInterrupt
        self.world.wait()
        done = self.step - first
        return TrainResult(
            self.run,
            self.step,
            loss,
            evaluation,
            done * n_tokens,
            time.perf_counter() - began,
            config.steps,
            self.step * n_tokens,
        )

    def _between(self, metrics: Metrics | None) -> Evaluation | None:
        """What is done after a step, when it is time for it."""
        config, last = self.config, self.step == self.config.steps
        evaluation, improved = None, False
        if self.evaluator is not None and (last or self.step % config.eval_steps == 0):
            evaluation = self.evaluator(self.trainer.shared, self.world, self.plan.autocast())
            improved = evaluation.loss < self.best
            self._tell(evaluation, metrics)
        if config.sample_steps and (last or self.step % config.sample_steps == 0):
            self._sample(metrics)
        if improved or last or self.step % config.checkpoint_steps == 0:
            self._save(evaluation)
        if improved and evaluation is not None:
            self._remember_best(evaluation.loss)
        return evaluation

    def _remember_best(self, loss: float) -> None:
        self.best = loss
        if self.world.first:
            write_best(self.run, self.step, loss)
            checkpoint.prune_steps(self.run, self.config.keep, self._best_place())

    def _tell(self, evaluation: Evaluation, metrics: Metrics | None) -> None:
        bits = evaluation.bits_per_byte
        text = (
            f"eval    step {self.step:,}  loss {evaluation.loss:.4f}  "
            f"perplexity {evaluation.perplexity:.2f}"
        )
        fields = {
            "step": self.step,
            "val_loss": evaluation.loss,
            "val_perplexity": evaluation.perplexity,
        }
        if bits is not None:
            text += f"  {bits:.4f} bits per byte"
            fields["val_bits_per_byte"] = bits
        self.report.event("evaluation", text, **fields)
        if metrics is not None:
            metrics.write(**fields)

    def _sample(self, metrics: Metrics | None) -> None:
        tokenizer = self.sources.tokenizer
        sharded = self.config.parallel == "fsdp" and self.world.size > 1
        if tokenizer is None or sharded or not self.world.first:
            return
        self.model.eval()
        try:
            text = generate_text(
                self.model,
                tokenizer,
                self.config.sample_prompt,
                self.config.sample_tokens,
                temperature=0.8,
                top_k=200,
                seed=self.config.seed,
            )[0]
        except BytemillError as error:
            self.report.say(f"note: no sample: {error.message}")
            return
        finally:
            self.model.train()
        whole = self.config.sample_prompt + text
        shown = json.dumps(whole, ensure_ascii=False)
        self.report.event("sample", f"sample  {shown}", step=self.step, sample=whole)
        if metrics is not None:
            metrics.write(step=self.step, sample=whole)

    def _save(self, evaluation: Evaluation | None = None) -> None:
        """Writes a checkpoint, with the loss of its evaluation if there was one."""
        loss = math.nan if evaluation is None else evaluation.loss
        # Shards are put together by all ranks; one writes.
        weights = checkpoint.weights_of(self.model)
        moments, facts = checkpoint.optimizer_state(self.model, self.trainer.optimizers)
        if self.world.first:
            checkpoint.write_step(
                self.run,
                self.step,
                weights,
                moments,
                {
                    "model": self.model.config.to_json(),
                    "optimizer": facts,
                    "tokenizer": tokenizer_fingerprint(self.sources.facts),
                    "seed": self.config.seed,
                    "ranks": self.world.size,
                    "val_loss": loss if math.isfinite(loss) else None,
                },
            )
            checkpoint.prune_steps(self.run, self.config.keep, self._best_place())

    def _best_place(self) -> Path | None:
        best = best_step(self.run)
        return None if best is None else best[0]

    def _check(self, value: float, what: str = "the loss") -> None:
        problem = self.watch(value) if what == "the loss" else None
        if not math.isfinite(value):
            problem = f"{what} is {value}"
        if problem is None:
            return
        steps = checkpoint.step_directories(self.run)
        kept = f"the last good checkpoint is {steps[-1]}" if steps else "there is no checkpoint yet"
        raise TrainingError(
            f"step {self.step + 1}: {problem}; {kept}",
            f"try an lr below {self.config.lr:g} or a warmup longer than "
            f"{self.config.warmup_steps} steps; clip=1.0 and beta2=0.95 also help",
        )


def _without_tokenizer(facts: Mapping[str, Any]) -> str:
    """What a run without a tokenizer lacks, and how to give it one."""
    made = facts["fingerprint"]
    which = "that the tokens were encoded with" + (f" (fingerprint {made[:12]}…)" if made else "")
    return (
        "no tokenizer found in or beside the tokens, so the run has none: no samples, no bits per "
        f"byte, and generate will need one. Give the one {which}: -t tokenizer.json"
    )
