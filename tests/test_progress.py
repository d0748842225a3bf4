"""Progress: the content of events, their displays, and that a broken display ends no work."""

from __future__ import annotations

import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import bytemill
from bytemill import progress
from bytemill.cli import streams
from bytemill.progress import (
    Progress,
    ProgressEvent,
    ProgressOption,
    StepOption,
    StepReport,
    displays,
    events,
)


class Clock:
    """A clock that advances only when told; processor time advances at half its speed."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now * 1.5


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (progress, displays, events):
        monkeypatch.setattr(module, "time", clock)
    return clock


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


def replace_stderr(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO | None) -> None:
    # Not in sys itself: pytest puts its own there again when the test begins.
    fake = types.SimpleNamespace(stderr=stream, modules=sys.modules)
    monkeypatch.setattr(displays, "sys", fake)


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    replace_stderr(monkeypatch, stream)
    return stream


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    replace_stderr(monkeypatch, stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return stream


def work(option: ProgressOption, clock: Clock, seconds: float = 4.0) -> None:
    """Counts 4 MB and merges 400 pairs, each in `seconds`, with ten reports a second."""
    steps = max(round(seconds * 10), 1)
    with Progress(option) as report:
        for phase, total in (("count", 4_000_000), ("merge", 400)):
            for step in range(1, steps + 1):
                clock.now += seconds / steps
                report(phase, total * step // steps, total)


# --- events -----------------------------------------------------------------------------------


def test_a_function_gets_every_event(clock: Clock) -> None:
    events: list[ProgressEvent] = []
    work(events.append, clock)
    assert len(events) == 80
    middle, last = events[19], events[39]
    assert (middle.phase, middle.done, middle.total) == ("count", 2_000_000, 4_000_000)
    assert middle.seconds == pytest.approx(2)
    assert middle.rate == pytest.approx(1e6)
    assert middle.eta == pytest.approx(2)
    assert middle.cpu == pytest.approx(150)
    assert last.eta == pytest.approx(0)
    # The second phase begins at the last event of the first.
    assert events[40].seconds == pytest.approx(0.1)
    assert events[79].rate == pytest.approx(100)


def test_the_rate_is_of_the_last_seconds(clock: Clock) -> None:
    events: list[ProgressEvent] = []
    with Progress(events.append) as report:
        for step in range(600):
            clock.now += 0.1
            # Slow for half a minute, then ten times as fast.
            report("merge", step if step < 300 else 300 + (step - 300) * 10, 3300)
    assert events[299].rate == pytest.approx(10, rel=0.01)
    assert events[599].rate == pytest.approx(100, rel=0.01)


def test_an_unknown_total(clock: Clock) -> None:
    events: list[ProgressEvent] = []
    with Progress(events.append) as report:
        clock.now += 1
        report("count", 10, None)
        report("count", 10, None)
    assert [(event.total, event.eta) for event in events] == [(None, None)] * 2


def test_what_the_function_raises_ends_the_work(clock: Clock, corpus: Path) -> None:
    def refuse(event: ProgressEvent) -> None:
        raise KeyError(event.phase)

    with pytest.raises(KeyError, match="count"):
        work(refuse, clock)
    with pytest.raises(KeyError, match="count"):
        bytemill.train_tokenizer(corpus, vocab_size=300, progress=refuse)


def test_training_reports_its_phases(corpus: Path) -> None:
    events: list[ProgressEvent] = []
    bytemill.train_tokenizer(corpus, vocab_size=1000, progress=events.append)
    assert list(dict.fromkeys(event.phase for event in events)) == ["count", "merge"]
    ends = {event.phase: event for event in events}
    assert ends["count"].done == ends["count"].total == corpus.stat().st_size
    assert ends["merge"].done == ends["merge"].total == 743
    for phase in ends:
        done = [event.done for event in events if event.phase == phase]
        assert done == sorted(done)
    assert all(event.memory > 0 for event in events)


@pytest.mark.parametrize("option", ["loud", 7, 1.5])
def test_a_wrong_option(option: Any) -> None:
    with pytest.raises(TypeError, match="progress"), Progress(option):
        pass


# --- displays ---------------------------------------------------------------------------------


def test_by_default_a_log_gets_lines_of_what_takes_long(clock: Clock, stderr: io.StringIO) -> None:
    work(None, clock, seconds=0.9)
    work(False, clock)
    assert stderr.getvalue() == ""
    work(None, clock)
    assert "  2.10 MB of 4.00 MB  " in stderr.getvalue()
    assert "count   4.00 MB in 4.0 s" in stderr.getvalue()


def test_a_log_of_long_work_gets_fewer_lines(clock: Clock, stderr: io.StringIO) -> None:
    work(None, clock, seconds=200)
    lines = stderr.getvalue().splitlines()
    assert len([line for line in lines if line.startswith("count")]) in range(42, 48)


def test_by_default_a_terminal_shows_what_takes_long(clock: Clock, terminal: Terminal) -> None:
    work(None, clock, seconds=0.2)
    assert terminal.getvalue() == ""
    work(None, clock, seconds=4)
    assert "count   4.00 MB in 4.0 s, 1.00 MB/s" in terminal.getvalue()


def test_a_terminal_has_one_line_redrawn(clock: Clock, terminal: Terminal) -> None:
    work(True, clock)
    text = terminal.getvalue()
    assert text.count("\n") == 2
    drawn = text.split("\n")[0].split("\r")
    assert all(len(line) <= 97 for line in drawn)
    assert "█░" in drawn[20]
    assert " 50%  2.00 MB of 4.00 MB  1.00 MB/s  2.0 s left  memory " in drawn[20]
    # A shorter line overwrites all of a longer one.
    for before, after in zip(drawn, drawn[1:]):
        assert len(after) >= len(before.rstrip())


@pytest.mark.parametrize("width", [20, 40, 60, 200])
def test_a_narrow_terminal(
    clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    work(True, clock)
    drawn = [
        line for line in terminal.getvalue().replace("\n", "\r").split("\r") if " in " not in line
    ]
    assert max(map(len, drawn)) <= width - 3


def test_a_terminal_that_knows_only_ascii(clock: Clock, terminal: Terminal) -> None:
    terminal.encoding = "ascii"
    work("terminal", clock)
    assert terminal.getvalue().isascii()
    assert "###---" in terminal.getvalue()


def test_an_interrupted_line_is_cleared(clock: Clock, terminal: Terminal) -> None:
    def interrupted() -> None:
        with Progress(True) as report:
            clock.now += 1
            report("count", 10, 20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    *_, drawn, cleared, rest = terminal.getvalue().split("\r")
    assert (cleared.strip(), rest) == ("", "")
    assert len(cleared) >= len(drawn) + 2


def test_a_log_gets_a_line_now_and_then(clock: Clock, stderr: io.StringIO) -> None:
    work(True, clock, seconds=6.5)
    lines = stderr.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["count"] * 4 + ["merge"] * 4
    assert "1.29 MB of 4.00 MB  615 kB/s  4.4 s left" in lines[0]
    assert lines[3].startswith("count   4.00 MB in 6.5 s, 615 kB/s, memory ")
    assert lines[7].startswith("merge   400 merges in 6.5 s, 62/s, memory ")


def test_a_log_gets_the_totals_of_short_work(clock: Clock, stderr: io.StringIO) -> None:
    work("plain", clock, seconds=0.1)
    assert len(stderr.getvalue().splitlines()) == 2


def test_a_dumb_terminal_is_a_log(
    clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    work(True, clock)
    assert "\r" not in terminal.getvalue()


def test_json_lines(clock: Clock, stderr: io.StringIO) -> None:
    work("json", clock)
    events = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert [(e["event"], e["phase"]) for e in events if e["event"] == "finished"] == [
        ("finished", "count"),
        ("finished", "merge"),
    ]
    assert 8 <= len(events) <= 12
    fields = {"event", *ProgressEvent.__dataclass_fields__}
    assert all(set(event) == fields for event in events)
    assert events[0]["done"] == 100_000


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, str]]]:
    """The outputs of a notebook, each as the list of what it showed."""
    outputs: list[list[dict[str, str]]] = []

    class Handle:
        def __init__(self, data: dict[str, str]) -> None:
            self.shown = [data]
            outputs.append(self.shown)

        def update(self, data: dict[str, str], raw: bool) -> None:
            self.shown.append(data)

    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display: Any = types.ModuleType("IPython.display")
    display.display = lambda data, raw, display_id: Handle(data)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return outputs


def test_a_notebook_has_one_output_a_phase(
    clock: Clock,
    stderr: io.StringIO,
    notebook: list[list[dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work(None, clock)
    assert stderr.getvalue() == ""
    assert [shown[-1]["text/plain"].split(",")[0] for shown in notebook] == [
        "count   4.00 MB in 4.0 s",
        "merge   400 merges in 4.0 s",
    ]
    assert "<progress" in notebook[0][0]["text/html"]
    # A plain IPython shell is a terminal like any other.
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", types.SimpleNamespace)
    notebook.clear()
    work(True, clock)
    assert notebook == []


NOTEBOOK = """
import time
import bytemill
from bytemill.progress import Progress
with Progress(None) as report:
    report("count", 10**6, 4 * 10**6)
    time.sleep(0.6)
    report("count", 2 * 10**6, 4 * 10**6)
    report.say("a <note>")
    report("merge", 1, 2)
tokenizer = bytemill.train_tokenizer(iter(["abab"]), vocab_size=257, special_tokens=())
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_notebook() -> None:
    """Jupyter's own kernel and display protocol: one output, updated in place."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel")
    cells = [NOTEBOOK, "tokenizer.visualize('abc')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    # The phase of bytes is one output, in its last state; nothing is on stderr.
    count, merge = notebook.cells[0].outputs
    assert count["output_type"] == merge["output_type"] == "display_data"
    assert count["data"]["text/html"].startswith("<pre>a &lt;note&gt;<br>count   2.00 MB in 0.")
    assert count["data"]["text/plain"].splitlines()[0] == "a <note>"
    assert merge["data"]["text/plain"].startswith("merge   1 merges in 0.")
    # A tokenized text is HTML there, and text elsewhere.
    [result] = notebook.cells[1].outputs
    assert result["data"]["text/plain"].startswith("ab│c")
    assert "&lt;span" in result["data"]["text/html"]


def test_a_broken_stream_does_not_end_the_work(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    replace_stderr(monkeypatch, closed)
    with Progress("json") as report:
        closed.close()
        report("count", 1, 2)
    replace_stderr(monkeypatch, None)
    work(True, clock)


def test_a_note_is_printed_above_the_progress_line(
    clock: Clock, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    with Progress("terminal") as report:
        clock.now += 1
        report("count", 10, 100)
        streams.note(None, "one file is empty")
        clock.now += 1
        report("count", 20, 100)
    # As on a terminal: text after a carriage return overwrites the line.
    lines = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    assert lines[0] == "note: one file is empty"
    assert lines[1].startswith("count   20 bytes in")
    assert "count   10%" not in "".join(lines)


def test_steps_that_take_seconds_have_a_rate_above_0(clock: Clock, stderr: io.StringIO) -> None:
    with progress.Progress("plain") as report:
        for step in range(1, 5):
            clock.now += 8.0
            report("sweep", step, 4)
    assert "0.12/s" in stderr.getvalue()
    assert " 0/s" not in stderr.getvalue()


# --- training steps and notes -------------------------------------------------------------------


def train(option: StepOption, clock: Clock, first: int = 0) -> None:
    """Ten steps of a second each; a note after every fifth."""
    with Progress(option) as report:
        report.say("model   1,000 parameters")
        clock.now += 100  # preparation is not a step
        report.begin("train", first)
        for step in range(first + 1, first + 11):
            clock.now += 1
            report.step(
                step, first + 10, eta=first + 10.0 - step, memory=2_000_000, loss=3.25, lr=1e-7,
                grad_norm=0.5, tokens_per_s=1234.0, mfu=0.4,
            )  # fmt: skip
            if step % 5 == 0:
                report.event("evaluation", f"eval    step {step}  <b>", step=step, val_loss=3.5)


def test_a_step_is_an_event(clock: Clock) -> None:
    steps: list[StepReport] = []
    train(steps.append, clock, first=40)
    assert [(step.phase, step.step, step.steps) for step in steps] == [
        ("train", n, 50) for n in range(41, 51)
    ]
    assert [step.seconds for step in steps] == pytest.approx(range(1, 11))
    assert steps[3].rate == pytest.approx(1)
    assert (steps[3].eta, steps[3].memory, steps[3].loss) == (6, 2_000_000, 3.25)
    events: list[ProgressEvent] = []
    train(events.append, clock)
    assert len(events) == 10


def test_a_log_of_training(clock: Clock, stderr: io.StringIO) -> None:
    train("plain", clock)
    lines = stderr.getvalue().splitlines()
    assert lines[0] == "model   1,000 parameters"
    assert lines[1] == (
        "train    10%  1 of 10  loss 3.250  lr 1e-07  1,234 tokens/s  mfu 40%  9.0 s left  "
        "memory 2.00 MB"
    )
    assert "eval    step 5  <b>" in lines
    assert lines[-1] == (
        "train   step 10 of 10 in 10.0 s, loss 3.250, 1,234 tokens/s, memory 2.00 MB"
    )


def test_json_lines_of_training(clock: Clock, stderr: io.StringIO) -> None:
    train("json", clock)
    events = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert events[0] == {"event": "note", "message": "model   1,000 parameters"}
    assert {"event": "evaluation", "step": 5, "val_loss": 3.5} in events
    fields = {"event", "step", "steps", *StepReport.__dataclass_fields__}
    assert set(events[1]) == set(events[-1]) == fields
    assert (events[1]["event"], events[-1]["event"]) == ("progress", "finished")
    assert (events[-1]["step"], events[-1]["steps"], events[-1]["lr"]) == (10, 10, 1e-7)


def test_notes_of_training_are_above_the_line(clock: Clock, terminal: Terminal) -> None:
    train(None, clock)
    lines = [line.rpartition("\r")[2].rstrip() for line in terminal.getvalue().split("\n")]
    assert [line.split("  ")[0] for line in lines] == ["model", "eval", "eval", "train", ""]


def test_notes_in_a_notebook_are_above_the_bar(clock: Clock, notebook: list[Any]) -> None:
    train(None, clock)
    [output] = notebook
    assert output[0]["text/plain"] == "model   1,000 parameters"
    assert '<progress max="1" value="0.7000">' in output[-6]["text/html"]
    note, bar = output[-6]["text/html"].split("<br>")[-2:]
    assert note == "eval    step 5  &lt;b&gt;"
    assert "<progress" in bar
    assert "train" in bar
    assert output[-1]["text/plain"].splitlines()[-1].startswith("train   step 10 of 10")
    assert "<progress" not in output[-1]["text/html"]
