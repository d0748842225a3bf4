"""What a scan found: tokenizers, runs and sweeps, as the pages see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..lm import RunState

__all__ = ["Found", "Kind", "RunEntry", "SweepEntry", "TokenizerEntry"]

Kind = Literal["file", "encoding", "run"]


@dataclass(frozen=True)
class TokenizerEntry:
    """A tokenizer; `path` is None for a named encoding."""

    id: str
    name: str
    kind: Kind
    path: Path | None
    facts: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name, "kind": self.kind} | self.facts


@dataclass(frozen=True)
class RunEntry:
    """A run; `has_diverged` says that its sweep stopped it for its loss."""

    id: str
    name: str
    path: Path
    state: RunState
    tokenizer: str | None
    sweep: str | None
    has_diverged: bool = False

    def to_json(self) -> dict[str, Any]:
        state = self.state
        diverged = self.has_diverged and state.status == "interrupted"
        return {
            "id": self.id,
            "name": self.name,
            "status": "diverged" if diverged else state.status,
            "step": state.step,
            "steps": state.steps,
            "checkpoints": state.checkpoints,
            "best": state.best,
            "tokenizer": self.tokenizer,
            "n_parameters": state.n_parameters,
            "val_loss": state.val_loss,
            "sweep": self.sweep,
        }


@dataclass(frozen=True)
class SweepEntry:
    """A sweep."""

    id: str
    name: str
    path: Path
    n_trials: int
    fields: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "name": self.name, "n_trials": self.n_trials, "fields": self.fields
        }  # fmt: skip


@dataclass
class Found:
    """The result of a scan, by id; sources of counts by path, with their names."""

    tokenizers: dict[str, TokenizerEntry] = field(default_factory=dict)
    runs: dict[str, RunEntry] = field(default_factory=dict)
    sweeps: dict[str, SweepEntry] = field(default_factory=dict)
    counts: dict[Path, str] = field(default_factory=dict)
    tokens: dict[Path, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "tokenizers": [entry.to_json() for entry in self.tokenizers.values()],
            "runs": [entry.to_json() for entry in self.runs.values()],
            "sweeps": [entry.to_json() for entry in self.sweeps.values()],
            "notes": self.notes,
        }
