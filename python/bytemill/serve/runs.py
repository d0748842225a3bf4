"""/api for the page Runs: runs, their metrics while they grow, sweeps; and the report of a run."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from .. import lm
from ..errors import ConfigError
from .found import RunEntry
from .recent import RecentlyUsed
from .replies import number_in_query, reply
from .state import State

__all__ = ["routes"]

MAX_ROWS = 20_000
MAX_COMPARED = 100
# Runs whose metrics are followed; each takes 8 bytes per line, and its samples.
MAX_FOLLOWED = 100
# The parts of a config that are compared.
COMPARED = ("model", "train", "tokens", "plan", "start_from")
# A report is one page with its own style, and nothing else.
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; " \
    "form-action 'none'; frame-ancestors 'none'"  # fmt: skip


def routes(state: State) -> list[Route]:
    """The routes under /api/runs and /api/sweeps, /api/differences, and /runs/{id}/report."""
    pages = _Runs(state)
    return [
        Route("/api/runs/{id}", pages.run, methods=["GET"]),
        Route("/api/runs/{id}/metrics", pages.metrics, methods=["GET"]),
        Route("/api/differences", pages.differences, methods=["GET"]),
        Route("/api/sweeps/{id}", pages.sweep, methods=["GET"]),
        Route("/runs/{id}/report", pages.report, methods=["GET"]),
    ]


class _Runs:
    def __init__(self, state: State) -> None:
        self._catalog = state.catalog
        self._followed = RecentlyUsed(MAX_FOLLOWED)

    def _entry(self, request: Request) -> RunEntry:
        return self._catalog.run(request.path_params["id"])

    def _metrics_of(self, entry: RunEntry) -> _Followed:
        return self._followed.get(entry.path, lambda: _Followed(entry))

    def run(self, request: Request) -> Response:
        entry = self._entry(request)
        return reply(
            entry.to_json()
            | {
                "config": entry.state.config,
                "tokens_per_step": entry.state.tokens_per_step,
                "samples": self._metrics_of(entry).samples(),
            }
        )

    def metrics(self, request: Request) -> Response:
        entry = self._entry(request)
        after = number_in_query(request, "after", 0, 1 << 40)
        version = number_in_query(request, "version", None, 1 << 50)
        found = self._metrics_of(entry).rows(after, version)
        return reply(found | {"status": entry.state.status})

    def differences(self, request: Request) -> Response:
        ids = [id for id in request.query_params.get("runs", "").split(",") if id]
        if len(ids) > MAX_COMPARED:
            raise ConfigError(f"at most {MAX_COMPARED} runs can be compared")
        configs = [_flat(self._catalog.run(id).state.config) for id in ids]
        names = list({name: None for config in configs for name in config})
        fields = []
        for name in names:
            values = [config.get(name) for config in configs]
            if any(value != values[0] for value in values):
                fields.append({"name": name, "values": values})
        return reply({"fields": fields})

    def sweep(self, request: Request) -> Response:
        entry = self._catalog.sweep(request.path_params["id"])
        found = lm.read_sweep(entry.path)
        runs = {run.path: run for run in self._catalog.found().runs.values()}
        trials: list[dict[str, Any]] = []
        for trial in found.trials:
            run = runs.pop(trial.run, None)
            fields = trial.to_json() | {"name": trial.run.name}
            trials.append(fields | {"run": None if run is None else run.id})
        # Runs that have not ended.
        for run in runs.values():
            if run.sweep == entry.id:
                trials.append(_unfinished(run, found.fields))
        return reply({"fields": found.fields, "trials": trials})

    def report(self, request: Request) -> Response:
        entry = self._entry(request)
        page = lm.report_run(entry.path).to_html()
        return HTMLResponse(page, headers={"Content-Security-Policy": REPORT_POLICY})


class _Followed:
    """The metrics of a run, and its samples."""

    def __init__(self, entry: RunEntry) -> None:
        self._log = lm.MetricsLog(entry.path)
        self._lock = threading.Lock()
        self._samples: list[dict[str, Any]] = []
        self._n_read = self._version = 0
        # Random, so that a page does not take versions of an earlier server for ours.
        self._first = secrets.randbits(40)

    def rows(self, after: int, version: int | None) -> dict[str, Any]:
        """The rows from line `after` on, or from the first if `version` is another."""
        with self._lock:
            rows = self._log.rows(after, MAX_ROWS)
            current = self._first + self._log.version
            if after > len(self._log) or version not in (None, current):
                after, rows = 0, self._log.rows(0, MAX_ROWS)
            return {
                "rows": rows,
                "after": after,
                "next": after + len(rows),
                "total": len(self._log),
                "version": current,
            }

    def samples(self) -> list[dict[str, Any]]:
        """All samples, with their steps."""
        with self._lock:
            while True:
                rows = self._log.rows(self._n_read, MAX_ROWS)
                if self._log.version != self._version:
                    self._samples, self._n_read = [], 0
                    self._version = self._log.version
                    continue
                if not rows:
                    return list(self._samples)
                self._n_read += len(rows)
                self._samples += [
                    {"step": row["step"], "text": row["sample"]} for row in rows if "sample" in row
                ]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config by dotted names."""
    flat: dict[str, Any] = {}
    for part in COMPARED:
        value = config.get(part)
        if isinstance(value, dict):
            flat |= {f"{part}.{name}": each for name, each in value.items()}
        else:
            flat[part] = value
    return flat


def _unfinished(run: RunEntry, fields: list[str]) -> dict[str, Any]:
    """A run of a sweep that has not ended, in the form of a trial."""
    config: dict[str, Any] = run.state.config.get("model", {}) | run.state.config.get("train", {})
    return {
        "run": run.id,
        "name": run.path.name,
        "settings": {name: config.get(name) for name in fields},
        "status": run.state.status,
        "step": run.state.step,
        "loss": None,
        "val_loss": run.state.val_loss,
        "val_bits_per_byte": None,
        "seconds": None,
        "message": None,
    }
