"""Which parts of a `tokenizers.Tokenizer` bytemill reproduces exactly, and why not the others.

The components of the pipeline are read from their serialized states. If a setting is not supported,
the original does the work; nothing is approximated.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tokenizers

from .._alphabet import bytes_of
from .._native import Core
from ..errors import BytemillError, TokenizerError
from ._encoding import (
    Encoding,
    EncodingRow,
    FixedSegment,
    Rules,
    Segment,
    Spelling,
    Text,
    TextSegment,
    kept,
    windows,
)

# A text in a template: its index, its type id, and the index of its sequence in the encoding.
Slot = tuple[int, int, int | None]
# The original class, also after a program has put ours in its place.
_Original: Any = tokenizers.Tokenizer
COMPONENTS = ("model", "normalizer", "pre_tokenizer", "post_processor", "decoder")
MODEL_SETTINGS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)


def state(original: Any, name: str) -> Any:
    """The settings of a component, for comparison: components may be changed in place."""
    component = getattr(original, name)
    if name == "model":
        size = original.get_vocab_size(with_added_tokens=False)
        return type(component), size, *(getattr(component, each, None) for each in MODEL_SETTINGS)
    if component is None:
        return None
    try:
        return component.__getstate__()
    except Exception:
        # Components written in Python have no state.
        return b'{"type": "custom"}'


class Template(NamedTuple):
    """Where special tokens are inserted around one text and around a pair."""

    single: list[Slot | FixedSegment]
    pair: list[Slot | FixedSegment]
    trims: bool = False
    prefix_space: bool = False
    # Whether overflowing tokens get type id 0 with the special tokens (RobertaProcessing).
    clears_types: bool = False
    # Whether there is a post-processor: only then do overflowing encodings have a sequence index.
    processes: bool = True

    @classmethod
    def read(cls, state: bytes | None) -> Template:
        plain: list[Slot | FixedSegment] = [(0, 0, 0), (1, 1, 1)]
        if state is None:
            return cls([(0, 0, None)], plain, processes=False)
        made, has_template = cls(plain[:1], plain), False
        for part in _flat(json.loads(state), "processors"):
            kind = part["type"]
            if has_template or kind not in ("ByteLevel", "TemplateProcessing", "RobertaProcessing"):
                after = " after a template" if has_template else ""
                raise TokenizerError(f"post_processor: {kind}{after} is not supported")
            if kind != "TemplateProcessing":
                if made.trims:
                    raise TokenizerError("post_processor: offsets are trimmed twice")
                made = made._replace(
                    trims=part.get("trim_offsets", True),
                    prefix_space=part.get("add_prefix_space", True),
                )
            if kind == "RobertaProcessing":
                has_template = True
                start, end = (
                    FixedSegment([id], [token], 0, 1) for token, id in (part["cls"], part["sep"])
                )
                first, second = (0, 0, 0), (1, 0, 1)
                made = made._replace(
                    single=[start, first, end],
                    pair=[start, first, end, end, second, end],
                    clears_types=True,
                )
            elif kind == "TemplateProcessing":
                has_template = True
                tokens = part["special_tokens"]
                made = made._replace(
                    single=[_element(piece, tokens) for piece in part["single"]],
                    pair=[_element(piece, tokens) for piece in part["pair"]],
                )
        return made


def _flat(component: dict[str, Any], members: str) -> Iterator[dict[str, Any]]:
    if component["type"] == "Sequence":
        for part in component[members]:
            yield from _flat(part, members)
    else:
        yield component


def _element(piece: dict[str, Any], tokens: dict[str, Any]) -> Slot | FixedSegment:
    ((kind, settings),) = piece.items()
    if kind == "Sequence":
        number = "AB".index(settings["id"])
        return number, settings["type_id"], number
    special = tokens[settings["id"]]
    return FixedSegment(special["ids"], special["tokens"], settings["type_id"], 1)


# --- added tokens ---------------------------------------------------------------------------------


class Added(NamedTuple):
    """The added tokens of a tokenizer."""

    # Those matched literally in text, as in a tokenizer.json.
    plain: list[dict[str, Any]]
    # The texts of those that are normalized before they are matched, in a normalized text.
    normalized: list[str]
    # The texts of the others: a text that contains one is encoded by the original.
    rare: list[str]
    special: dict[int, str]
    ordinary: dict[int, str]
    # Ids whose text does not decode to itself.
    odd: frozenset[int]


def added_tokens(original: Any) -> Added:
    plain, normalized, rare = [], [], []
    texts: dict[bool, dict[int, str]] = {True: {}, False: {}}
    for id, token in original.get_added_tokens_decoder().items():
        texts[token.special][id] = token.content
        if token.normalized:
            normalized.append(token.content)
        if token.lstrip or token.rstrip or token.single_word:
            rare.append(token.content)
        else:
            settings = {"special": token.special, "normalized": token.normalized}
            plain.append({"id": id, "content": token.content, **settings})
    everything = texts[True] | texts[False]
    odd = frozenset(id for id, text in everything.items() if bytes_of(text) != text.encode())
    return Added(plain, normalized, rare, texts[True], texts[False], odd)


def _is_nfc(normalizer: bytes | None) -> bool:
    """Whether the normalizer is NFC; False if there is none. Others raise a `TokenizerError`."""
    parts = [] if normalizer is None else list(_flat(json.loads(normalizer), "normalizers"))
    for part in parts:
        if part["type"] != "NFC":
            raise TokenizerError(f"normalizer: {part['type']} is not supported")
    return bool(parts)


@functools.cache
def _unassigned() -> re.Pattern[str]:
    """Characters unassigned in Python's Unicode version; NFC of a later one may change them."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) == "Cn":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return re.compile("[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]")


def _is_normal(text: str) -> bool:
    """Whether a text is in NFC, in every version of Unicode."""
    return unicodedata.is_normalized("NFC", text) and not _unassigned().search(text)


@functools.cache
def exits_early() -> bool:
    """Whether this version of `tokenizers` loses overflowing tokens (0.23.0 and 0.23.1 do)."""
    model: Any = tokenizers.models.BPE(vocab={"a": 0}, merges=[])
    tokenizer = _Original(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(1)
    return len(tokenizer.encode("a a a").overflowing) != 2


class Explanation(NamedTuple):
    """What bytemill does for a tokenizer, and why the original does the rest."""

    # None if bytemill encodes, or decodes; else why it does not.
    encode_reason: str | None
    decode_reason: str | None
    # The original encodes texts that contain one of these tokens or are not in this form.
    original_tokens: list[str]
    normal_form: str | None

    def __str__(self) -> str:
        lines = [
            f"{name}: " + ("bytemill" if reason is None else f"original ({reason})")
            for name, reason in (("encode", self.encode_reason), ("decode", self.decode_reason))
        ]
        if self.encode_reason is None:
            exceptions = ["lists of words"]
            if self.original_tokens:
                exceptions.append("texts with " + ", ".join(self.original_tokens))
            if self.normal_form:
                exceptions.append(f"texts that are not in {self.normal_form}")
            lines[0] += f"; original for {', '.join(exceptions)}"
        return "\n".join(lines)


# --- the pipeline ---------------------------------------------------------------------------------


class Pipeline:
    """An immutable snapshot of a tokenizer's configuration, which encodes texts."""

    def __init__(self, original: Any, core: Core | None = None) -> None:
        """Reads the components; `core`, if given, must have the tables of `original`."""
        self._states = {name: state(original, name) for name in COMPONENTS}
        self.core = core
        # Why bytemill does not encode texts, or decode ids; None if it does.
        self.encode_reason: str | None = None
        self.decode_reason: str | None = None
        self._added = added_tokens(original)
        self._pattern: re.Pattern[str] | None = None
        self.special_ids = frozenset(self._added.special)
        self.odd = self._added.odd
        try:
            self._normalizes = _is_nfc(self._states["normalizer"])
            self._template = Template.read(self._states["post_processor"])
            self._check_added()
            if self.core is None:
                self.core = self._read(original)
        except BytemillError as error:
            self.encode_reason = error.message
            self.core = None
            self.decode_reason = self.encode_reason
        else:
            self.decode_reason = _undecodable(self._states["decoder"])
            self._set_special(self.core, original.encode_special_tokens)

    def fits(self, original: Any, names: Iterable[str]) -> bool:
        """Whether these components are unchanged since the snapshot."""
        return all(state(original, name) == self._states[name] for name in names)

    def _check_added(self) -> None:
        if self._normalizes:
            for text in self._added.normalized:
                if not _is_normal(text):
                    raise TokenizerError(f"added_tokens: {text!r} is not in NFC")

    def _read(self, original: Any) -> Core:
        model = original.model
        if type(model).__name__ != "BPE":
            raise TokenizerError(f"model: {type(model).__name__} is not supported")
        parts = [
            b'{"added_tokens":',
            json.dumps(self._added.plain).encode(),
            b',"pre_tokenizer":',
            self._states["pre_tokenizer"] or b"null",
            b',"model":',
            model.__getstate__(),
            b"}",
        ]
        try:
            return Core.read("huggingface", [("", b"".join(parts))], [], [])
        except TokenizerError as error:
            raise TokenizerError(error.message.removeprefix(": ")) from None

    def _set_special(self, core: Core, encode_special_tokens: bool) -> None:
        """Sets the added tokens recognized in text; none special if the flag is set."""
        special: Any = "all"
        recognized = {token["content"]: token["id"] for token in self._added.plain}
        rare = set(self._added.rare)
        if encode_special_tokens:
            texts = set(self._added.special.values())
            recognized = {text: id for text, id in recognized.items() if text not in texts}
            special = set(recognized) or "none"
            # Special tokens hide others that overlap them, even if they are not recognized.
            rare = rare | texts if recognized else rare - texts
        if rare:
            longest_first = sorted(rare, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        template, ids = self._template, frozenset(recognized.values())
        trims, prefix_space = template.trims, template.prefix_space
        self.rules = Rules(core, special, ids, Spelling(core), trims, prefix_space)

    def explanation(self) -> Explanation:
        form = "NFC" if self.encode_reason is None and self._normalizes else None
        return Explanation(self.encode_reason, self.decode_reason, self._added.rare, form)

    def accepts(self, text: object) -> bool:
        """Whether bytemill encodes this text."""
        if not isinstance(text, str):
            return False
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return False
            if self._normalizes and not _is_normal(text):
                return False
        return self._pattern is None or not self._pattern.search(text)

    def encoded(self, texts: Sequence[str], threads: int | None, bare: bool) -> list[Text]:
        """Encodes texts, all of which `accepts` must allow."""
        rules = self.rules
        if len(texts) == 1:
            ids = rules.core.encode_array(texts[0], rules.special)
            return [Text(rules, texts[0], ids, bare)]
        flat, offsets = rules.core.encode_flat(texts, rules.special, threads)
        ends = offsets.tolist()
        return [
            Text(rules, text, flat[start:end], bare)
            for text, start, end in zip(texts, ends, ends[1:])
        ]

    def assembled(
        self, texts: Sequence[Text], truncation: dict[str, Any] | None, adds: bool
    ) -> Encoding | None:
        """The unpadded encoding of one or two texts; None if the original must encode them."""
        template = self._template.single if len(texts) == 1 else self._template.pair
        if texts[0].bare and not self._template.processes:
            template = [(i, 0, sequence) for i, _, sequence in template]  # type: ignore[misc]
        spans = [(0, text.n) for text in texts]
        if truncation is None:
            return Encoding(_segments(template, texts, spans, adds))
        n_added = sum(len(each) for each in template if type(each) is FixedSegment) if adds else 0
        lengths = [text.n for text in texts]
        limit = truncation["max_length"] - n_added
        if limit <= 0:
            return None
        if sum(lengths) <= limit:
            return Encoding(_segments(template, texts, spans, adds))
        counts = kept(lengths, limit, truncation["strategy"])
        stride, left = truncation["stride"], truncation["direction"] == "left"
        if counts is None or exits_early():
            return None
        if any(count <= stride for count, n in zip(counts, lengths) if count < n):
            return None
        spans = [(n - count, n) if left else (0, count) for n, count in zip(lengths, counts)]

        def overflow() -> list[EncodingRow]:
            cuts = [windows(n, count, stride, left) for n, count in zip(lengths, counts)]
            return self._overflowing(template, texts, cuts, adds)

        return Encoding(_segments(template, texts, spans, adds), overflow)

    def _overflowing(
        self,
        template: list[Slot | FixedSegment],
        texts: Sequence[Text],
        cuts: Sequence[Sequence[tuple[int, int]]],
        adds: bool,
    ) -> list[EncodingRow]:
        row = EncodingRow([], [])
        for element in template:
            if type(element) is FixedSegment:
                row = row + EncodingRow([element], []) if adds else row
                continue
            assert isinstance(element, tuple)
            number, type_id, sequence = element
            text = texts[number]
            # Overflowing tokens keep the type id from before a TemplateProcessing.
            cleared = text.bare or (adds and self._template.clears_types)
            others = [
                EncodingRow(
                    [
                        TextSegment(
                            text,
                            start,
                            stop,
                            0 if cleared else number,
                            number if self._template.processes else None,
                        )
                    ],
                    [],
                )
                for start, stop in cuts[number][1:]
            ]
            start, stop = cuts[number][0]
            row = row + EncodingRow([TextSegment(text, start, stop, type_id, sequence)], others)
        return row.overflowing


def _segments(
    template: list[Slot | FixedSegment],
    texts: Sequence[Text],
    spans: Sequence[tuple[int, int]],
    adds: bool,
) -> list[Segment]:
    segments: list[Segment] = []
    for element in template:
        if isinstance(element, tuple):
            number, type_id, sequence = element
            start, stop = spans[number]
            segments.append(TextSegment(texts[number], start, stop, type_id, sequence))
        elif adds:
            segments.append(element)
    return segments


def _undecodable(decoder: bytes | None) -> str | None:
    if decoder is None:
        return "decoder: there is none, so that tokens are joined with spaces"
    parts = list(_flat(json.loads(decoder), "decoders"))
    if [part["type"] for part in parts] != ["ByteLevel"]:
        return f"decoder: {', '.join(part['type'] for part in parts)} is not supported"
    return None
