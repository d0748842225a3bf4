"""The source of the documentation site, in target/site-source: `make docs` builds it.

The pages of this directory are copied, so that links to the code lead to the repository. Two kinds
of pages are generated: the command line from the commands themselves, and the Python interface
from `__all__` (mkdocstrings fills in signatures and docstrings).
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

import bytemill
import bytemill.lm
from bytemill.cli import app

TOP = Path(__file__).parents[1]
SOURCE = TOP / "target" / "site-source"
REPOSITORY = "https://github.com/bytemill/bytemill/blob/main"

# Page → title, module, names.
MODULES = {
    "python.md": (
        "Python: tokenizers and tokens",
        "bytemill",
        [*bytemill.__all__, "encodings", "engines"],
    ),
    "python-lm.md": ("Python: the language model", "bytemill.lm", bytemill.lm.__all__),
    "python-compat.md": (
        "Python: drop-in interfaces",
        "bytemill.compat",
        ["tiktoken", "huggingface", "tokenizers", "minbpe"],
    ),
}

# Other names in signatures, by module: types, their choices, and defaults.
TYPES = {
    "bytemill.corpus.argument": ["CorpusLike", "Places"],
    "bytemill.corpus.places": ["Entry", "Listing", "Reader"],
    "bytemill.corpus.choosing": ["SkippedFile"],
    "bytemill.formats": [
        "PatternLike",
        "PatternName",
        "TokenizerFormat",
        "HuggingFaceTokenizer",
        "TiktokenEncoding",
    ],
    "bytemill.learn": ["TieBreak"],
    "bytemill.counts": ["DEFAULT_PATTERN", "DEFAULT_SPECIALS"],
    "bytemill.engines": ["EngineLike", "UNIT_SIZE"],
    "bytemill._native": ["Special"],
    "bytemill.tokens.plan": ["SplitName"],
    "bytemill.progress": ["ProgressOption", "ProgressCallback", "StepOption"],
    "bytemill.look": ["Result", "Statistics"],
    "bytemill.look.tokenized": ["Span", "TokenizedText"],
    "bytemill.lm.config": [
        "Norm",
        "Positions",
        "FeedForward",
        "Dtype",
        "Compile",
        "KernelOption",
        "Schedule",
        "OptimizerName",
        "Parallel",
    ],
    "bytemill.lm.keywords": [
        "ConfigOptions",
        "IdOptions",
        "ModelOptions",
        "PresetName",
        "SamplingOptions",
        "Special",
        "StepName",
        "TextOptions",
        "TokenDtype",
    ],
    "bytemill.lm.data": ["TokenArray"],
    "bytemill.lm.model": ["Device", "KVCache", "LayerCache"],
    "bytemill.lm.naive": ["Closure", "Parameters"],
    "bytemill.lm.optim": ["Closure", "Optimizers", "Parameters"],
    "bytemill.lm.generate": ["Sampler"],
    "bytemill.lm.evaluation": ["DocumentScore"],
    "bytemill.lm.plan.plot": ["XAxis"],
    "bytemill.lm.run.checkpoint": ["AnyOptimizer", "Target"],
    "bytemill.lm.run.history": ["Column", "EvaluatedStep", "History", "Sample"],
    "bytemill.lm.run.sources": ["Array"],
    "bytemill.lm.run.state": ["RunStatus"],
    "bytemill.lm.report.card": ["Status"],
    "bytemill.lm.report.commands": ["Command"],
    "bytemill.lm.report.expected": ["Cost"],
    "bytemill.lm.plan.accounting": ["Dtype", "MFU"],
    "bytemill.lm.plan.costs": ["Memory"],
    "bytemill.lm.plan.results": ["Status"],
    "bytemill.lm.exchange.exporting": ["Target", "WeightType"],
}


def main() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(TOP / "docs", SOURCE, ignore=ignored)
    for page in SOURCE.rglob("*.md"):
        # In tables, GitHub needs pipes in code escaped; the site builder does not.
        text = re.sub(
            r"`[^`\n]*`", lambda code: code[0].replace(r"\|", "|"), link_to_repository(page)
        )
        page.write_text(text, encoding="utf-8")
    reference = SOURCE / "reference"
    reference.mkdir()
    (reference / "command-line.md").write_text("\n".join(command_line()), encoding="utf-8")
    (reference / "python-types.md").write_text("\n".join(types()), encoding="utf-8")
    for name, (title, module, names) in MODULES.items():
        (reference / name).write_text("\n".join(python(title, module, names)), encoding="utf-8")


def link_to_repository(page: Path) -> str:
    """The text of a page, with links to files outside of docs/ pointing to the repository."""

    def replace(match: re.Match[str]) -> str:
        path = (TOP / "docs" / page.relative_to(SOURCE).parent / match[1]).resolve()
        if path.is_relative_to(TOP / "docs"):
            return match[0]
        return f"]({REPOSITORY}/{path.relative_to(TOP).as_posix()}{match[2] or ''})"

    return re.sub(r"\]\((\.\.?/[^)#]*)(#[^)]*)?\)", replace, page.read_text(encoding="utf-8"))


def command_line() -> Iterator[str]:
    yield "# Command line\n"
    context = click.Context(app, info_name="bytemill")
    yield "Data goes to stdout, everything else to stderr.\n"
    yield "| exit code | meaning |\n| --: | --- |"
    yield "| 0 | done |\n| 1 | an error, explained on stderr |\n| 2 | wrong usage |"
    yield "| 130 | interrupted with Ctrl-C |\n"
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        yield f"## bytemill {name}\n"
        yield from about(command, click.Context(command, info_name=name, parent=context))


def about(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    yield f"{inspect.cleandoc(re.sub(chr(8) + '.*', '', command.help or '', flags=re.DOTALL))}\n"
    yield "| option | meaning |\n| --- | --- |"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # The arguments are explained above the table.
        if record is not None and record[1]:
            option, meaning = record
            yield f"| `{option}` | {cell(meaning)} |"
    examples = (command.epilog or "").replace("\b\n", "").strip().removeprefix("examples:")
    if examples:
        lines = "\n".join(line.strip() for line in examples.strip("\n").splitlines())
        yield f"\n```text\n{lines}\n```\n"


def cell(text: str) -> str:
    """Text for a cell of a table."""
    escaped = re.sub(r"([\\\[\]*_])", r"\\\1", re.sub(r"\s+", " ", text))
    return escaped.replace("<", "&lt;").replace("|", "&#124;")


def python(title: str, module: str, names: list[str]) -> Iterator[str]:
    yield f"# {title}\n"
    for name in names:
        if not name.startswith("__"):
            yield f"::: {module}.{name}\n"


def types() -> Iterator[str]:
    yield "# Python: types in signatures\n"
    yield "Names that signatures use beside the classes of the other pages, by module.\n"
    for module, names in TYPES.items():
        yield f"## `{module}`\n"
        for name in names:
            yield f"::: {module}.{name}\n    options:\n      heading_level: 3\n"


if __name__ == "__main__":
    main()
