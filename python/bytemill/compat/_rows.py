"""From encoded texts to rows for a model: truncate, add special tokens, pad.

The order and the arithmetic are those of the `tokenizers` library, which `PreTrainedTokenizerFast`
stands on; the tests hold them to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import TokenizerError

Span = tuple[int, int]
Row = dict[str, Any]
WHITE_SPACE = "Ġ \t\n\r\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class Part(NamedTuple):
    """A text's ids and, if they are asked for, the places of their tokens in it."""

    ids: list[int]
    spans: list[Span] | None

    def cut(self, start: int, end: int) -> Part:
        return Part(self.ids[start:end], self.spans and self.spans[start:end])


class Step(NamedTuple):
    """A step of a template: text number `text`, or if that is None special tokens."""

    text: int | None
    ids: list[int]
    type_id: int


class Template(NamedTuple):
    """How special tokens stand around one text and around two."""

    single: list[Step]
    pair: list[Step]
    # Whether spans leave out the white space at the ends of tokens, and whether the first space
    # was put there by the tokenizer.
    trims: bool = False
    prefix_space: bool = False

    def n_added(self, pair: bool) -> int:
        return sum(len(step.ids) for step in (self.pair if pair else self.single))


PLAIN = Template([Step(0, [], 0)], [Step(0, [], 0), Step(1, [], 1)])


def template_of(processor: Mapping[str, Any] | None) -> Template:
    """The template that the post-processor of a tokenizer.json describes."""
    if processor is None:
        return PLAIN
    kind = processor["type"]
    if kind == "ByteLevel":
        return PLAIN._replace(
            trims=bool(processor.get("trim_offsets", True)),
            prefix_space=bool(processor.get("add_prefix_space", True)),
        )
    if kind == "TemplateProcessing":
        tokens = processor["special_tokens"]
        single, pair = (
            [_step(piece, tokens) for piece in processor[name]] for name in ("single", "pair")
        )
        return Template(single, pair)
    if kind == "Sequence":
        parts = [template_of(part) for part in processor["processors"]]
        adding = [part for part in parts if part[:2] != PLAIN[:2]]
        trimming = [part for part in parts if part.trims]
        if len(adding) <= 1 and len(trimming) <= 1:
            said = trimming[0] if trimming else PLAIN
            made = adding[0] if adding else PLAIN
            return made._replace(trims=said.trims, prefix_space=said.prefix_space)
    raise TokenizerError(
        f"the post-processor {kind} is not known here",
        "known are ByteLevel and TemplateProcessing, alone or in a sequence",
    )


def _step(piece: Mapping[str, Any], tokens: Mapping[str, Any]) -> Step:
    ((kind, said),) = piece.items()
    if kind == "Sequence":
        return Step("AB".index(said["id"]), [], said["type_id"])
    return Step(None, list(tokens[said["id"]]["ids"]), said["type_id"])


def around(bos: tuple[str, int] | None, eos: tuple[str, int] | None) -> Row:
    """The post-processor, as in a tokenizer.json, that puts tokens before and after each text."""

    def steps(text: str, type_id: int) -> list[Row]:
        tokens = [
            each and {"SpecialToken": {"id": each[0], "type_id": type_id}} for each in (bos, eos)
        ]
        sequence = {"Sequence": {"id": text, "type_id": type_id}}
        return [step for step in (tokens[0], sequence, tokens[1]) if step]

    return {
        "type": "TemplateProcessing",
        "single": steps("A", 0),
        "pair": steps("A", 0) + steps("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [id], "tokens": [text]}
            for text, id in filter(None, (bos, eos))
        },
    }


# --- truncation -----------------------------------------------------------------------------------


def chunks(part: Part, length: int, stride: int, side: str) -> list[Part]:
    """The text in rows of at most `length` ids, of which `stride` are also in the row before."""
    n_ids = len(part.ids)
    if n_ids <= length:
        return [part]
    if length == 0:
        return [part.cut(0, 0), part]
    out: list[Part] = []
    step = length - stride
    if side == "right":
        for start in range(0, n_ids, step):
            out.append(part.cut(start, start + length))
            if start + length >= n_ids:
                break
    else:
        for end in range(n_ids, 0, -step):
            out.append(part.cut(max(0, end - length), end))
            if end <= length:
                break
    return out


def lengths_of_pair(first: int, second: int, length: int, strategy: str) -> tuple[int, int]:
    """How many ids of each text of a pair are kept."""
    if length == 0:
        return 0, 0
    excess = first + second - length
    if excess <= 0:
        return first, second
    if strategy == "longest_first":
        shorter, longer = sorted((first, second))
        longer = shorter if shorter > length else max(shorter, length - shorter)
        if shorter + longer > length:
            shorter = length // 2
            longer = shorter + length % 2
        return (shorter, longer) if first <= second else (longer, shorter)
    kept = (first if strategy == "only_first" else second) - excess
    if kept <= 0:
        raise ValueError(
            f"truncation={strategy!r} cannot make the pair {length} ids long: "
            f"{excess} are too many, and that text has {kept + excess}"
        )
    return (kept, second) if strategy == "only_first" else (first, kept)


# --- rows -----------------------------------------------------------------------------------------


def row_of(parts: Sequence[Part], template: Sequence[Step], names: Iterable[str]) -> Row:
    """The columns of one row."""
    row: Row = {name: [] for name in names}
    for step in template:
        part = Part(step.ids, None) if step.text is None else parts[step.text]
        same: Row = {
            "token_type_ids": step.type_id,
            "attention_mask": 1,
            "special_tokens_mask": int(step.text is None),
            "offset_mapping": (0, 0),
        }
        for name, column in row.items():
            if name == "input_ids":
                column += part.ids
            elif name == "offset_mapping" and part.spans is not None:
                column += part.spans
            else:
                column += [same[name]] * len(part.ids)
    return row


def padded_length(length: int, multiple: int | None) -> int:
    """The length, rounded up to a multiple."""
    return -(-length // multiple) * multiple if multiple else length


def pad_row(row: Row, length: int, side: str, pad_id: int) -> None:
    """Fills the columns of a row that padding concerns up to a length."""
    if side not in ("left", "right"):
        raise ValueError(f"padding_side={side!r} is not 'left' or 'right'")
    missing = length - len(row["input_ids"])
    if missing <= 0:
        return
    fillers = {
        "input_ids": pad_id,
        "token_type_ids": 0,
        "attention_mask": 0,
        "special_tokens_mask": 1,
        "offset_mapping": (0, 0),
    }
    for name, filler in fillers.items():
        if name in row:
            filling = [filler] * missing
            row[name] = filling + row[name] if side == "left" else row[name] + filling


def trimmed(tokens: Iterable[str], spans: Iterable[Span], prefix_space: bool) -> list[Span]:
    """The spans of tokens without the white space at their ends.

    Tokens are spelled in the byte alphabet, where `Ġ` is a space; special tokens as they are. With
    `prefix_space`, one space before the text is taken to be none of its own.
    """
    out: list[Span] = []
    for token, (start, end) in zip(tokens, spans):
        leading = len(token) - len(token.lstrip(WHITE_SPACE))
        trailing = len(token) - len(token.rstrip(WHITE_SPACE))
        if leading and prefix_space and (not out or start == 0):
            leading -= 1
        start = min(start + leading, end)
        if end >= trailing:
            end = max(end - trailing, start)
        out.append((start, end))
    return out
