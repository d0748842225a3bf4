"""transformers' `PreTrainedTokenizerFast`: called like it, with its results, without it.

Enough for `datasets.map`, the data collators and a `Trainer`. Encoding is the core's; what comes
after it (special tokens around a text, truncation, padding) is `_rows`, what is known of tokens
`_named_tokens`. Chat templates are kept and not applied. Texts that are cut into words already, and
maps between words and tokens, are not here. An option that is not known is a `TypeError`, never
passed over.
"""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import _files
from ..errors import TokenizerError
from . import _chat_templates, _rows
from ._arguments import (
    as_list,
    as_lists,
    choice,
    columns_of,
    kind_of,
    read_json,
    room,
    samples_of,
    warn_once,
)
from ._batch_encoding import BatchEncoding, tensor_kind
from ._named_tokens import NAMED, NamedTokens, content
from ._rows import Part, Row

__all__ = ["BatchEncoding", "PreTrainedTokenizerFast"]

# What transformers writes for "no limit", and above which it takes a limit for none.
NO_LIMIT = int(1e30)
LARGE = int(1e20)
TRUNCATION = ("longest_first", "only_first", "only_second", "do_not_truncate")
PADDING = ("longest", "max_length", "do_not_pad")
SAVED = (
    "extra_special_tokens",
    "model_max_length",
    "padding_side",
    "truncation_side",
    "model_input_names",
    "clean_up_tokenization_spaces",
    "split_special_tokens",
)


CONFIG = "tokenizer_config.json"


class PreTrainedTokenizerFast(NamedTokens):
    """A tokenizer with the interface of transformers' class of that name.

    >>> from bytemill import train_tokenizer
    >>> made = train_tokenizer(iter(["low lower lowest"] * 9), vocab_size=260)
    >>> tokenizer = PreTrainedTokenizerFast(made, pad_token="<|endoftext|>")
    >>> tokenizer(["low", "lowest"], padding=True, return_tensors="np").input_ids
    array([[257, 259, 259],
           [258, 115, 116]])
    """

    is_fast = True

    def __init__(
        self,
        tokenizer_object: Any = None,
        *,
        tokenizer_file: str | os.PathLike[str] | None = None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        unk_token: str | None = None,
        sep_token: str | None = None,
        pad_token: str | None = None,
        cls_token: str | None = None,
        mask_token: str | None = None,
        extra_special_tokens: Sequence[str] | Mapping[str, str] = (),
        model_specific_special_tokens: Mapping[str, str] | None = None,
        chat_template: Any = None,
        add_bos_token: bool | None = None,
        add_eos_token: bool | None = None,
        model_max_length: int | None = None,
        padding_side: str = "right",
        truncation_side: str = "right",
        model_input_names: Sequence[str] = ("input_ids", "attention_mask"),
        clean_up_tokenization_spaces: bool = False,
        split_special_tokens: bool = False,
        name_or_path: str = "",
    ) -> None:
        """Takes a tokenizer of ours or of `tokenizers`, or a tokenizer.json.

        A special token that is not in the vocabulary is added to it. `extra_special_tokens` is a
        list, or as `model_specific_special_tokens` a mapping from names: with
        `{"image_token": "<image>"}` there are `image_token` and `image_token_id`. `add_bos_token`
        and `add_eos_token` say what stands around every text, in place of what the tokenizer says;
        they may be assigned too. `chat_template` is kept, and saved, but not applied.
        """
        for side, value in (("padding", padding_side), ("truncation", truncation_side)):
            if value not in ("left", "right"):
                raise ValueError(f"{side}_side={value!r} is not 'left' or 'right'")
        super().__init__(tokenizer_object, tokenizer_file)
        self.model_max_length = NO_LIMIT if model_max_length is None else model_max_length
        self.padding_side = padding_side
        self.truncation_side = truncation_side
        self.model_input_names = list(model_input_names)
        self.clean_up_tokenization_spaces = clean_up_tokenization_spaces
        self.split_special_tokens = split_special_tokens
        self.name_or_path = name_or_path
        # What a tokenizer_config.json says beside, to be written again.
        self._config: Row = {}
        self.chat_template = chat_template
        of_model = dict(model_specific_special_tokens or {})
        if isinstance(extra_special_tokens, Mapping):
            of_model = {**extra_special_tokens, **of_model}
            extra_special_tokens = ()
        self._take_names(of_model)
        values = (bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token)
        self._name_all(
            {name: value for name, value in zip(NAMED, values) if value is not None}
            | of_model
            | {"extra_special_tokens": list(extra_special_tokens)}
        )
        self._add_bos_token, self._add_eos_token = bool(add_bos_token), bool(add_eos_token)
        if add_bos_token is not None or add_eos_token is not None:
            self._surround()

    @property
    def chat_template(self) -> _chat_templates.Template | None:
        """The chat template, or several by name. Kept and saved; there is nothing to apply it."""
        return self._chat_template

    @chat_template.setter
    def chat_template(self, template: Any) -> None:
        self._chat_template = _chat_templates.checked(template)

    def apply_chat_template(self, *_args: Any, **_options: Any) -> NoReturn:
        """Refused: templates are kept, not applied."""
        raise NotImplementedError(
            "chat templates are kept but not applied here\n"
            "hint: save_pretrained, and load the directory with transformers"
        )

    # --- encoding -----------------------------------------------------------------------------

    def __call__(
        self,
        text: str | Sequence[Any],
        text_pair: str | Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        padding: bool | str = False,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        stride: int = 0,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        split_special_tokens: bool | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Encodes a text, a pair of texts, or a batch of either, ready for a model.

        The options are those of transformers. With `return_overflowing_tokens`, what truncation
        cuts off comes as further rows, and `overflow_to_sample_mapping` says whose they are.
        """
        kind = tensor_kind(return_tensors)
        samples, batched = samples_of(text, text_pair)
        pad_to, cut, length = self._strategies(
            padding, truncation, max_length, pad_to_multiple_of, verbose
        )
        wanted = {
            "input_ids": True,
            "token_type_ids": return_token_type_ids,
            "attention_mask": return_attention_mask,
            "special_tokens_mask": return_special_tokens_mask,
            "offset_mapping": return_offsets_mapping,
        }
        names = [
            name
            for name, said in wanted.items()
            if (name in self.model_input_names if said is None else said)
        ]
        if split_special_tokens is None:
            split_special_tokens = self.split_special_tokens
        added = self._template if add_special_tokens else _rows.PLAIN
        parts = iter(self._parts([t for s in samples for t in s], split_special_tokens, names))
        rows: list[Row] = []
        owners: list[int] = []
        for owner, sample in enumerate(samples):
            cuts = [[next(parts) for _ in sample]]
            pair = len(sample) == 2
            if cut != "do_not_truncate" and length is not None:
                left = room(length, added.n_added(pair), stride)
                cuts = self._truncated(cuts[0], left, stride, cut, return_overflowing_tokens)
            template = added.pair if pair else added.single
            rows += [_rows.row_of(each, template, names) for each in cuts]
            owners += [owner] * len(cuts)
        if pad_to != "do_not_pad" and rows:
            longest = max(len(row["input_ids"]) for row in rows)
            size = length if pad_to == "max_length" and length is not None else longest
            size = _rows.padded_length(size, pad_to_multiple_of)
            for row in rows:
                _rows.pad_row(row, size, padding_side or self.padding_side, self.pad_token_id)
        if max_length is None and verbose:
            self._note_long(rows)
        columns: Row = {name: [row[name] for row in rows] for name in names}
        if return_length:
            columns["length"] = [len(row["input_ids"]) for row in rows]
        if return_overflowing_tokens:
            columns["overflow_to_sample_mapping"] = owners
        elif not batched and kind is None:
            columns = {n: c if n == "length" else c[0] for n, c in columns.items()}
        return BatchEncoding(columns, kind)

    def _parts(self, texts: list[str], split_special: bool, names: Iterable[str]) -> list[Part]:
        """The ids of texts, and if asked for the places of their tokens."""
        special = (self._plain or "none") if split_special else "all"
        if "offset_mapping" not in names:
            ids = self._tokenizer.encode_batch(texts, special=special, lists=True)
            return [Part(each, None) for each in ids]
        parts: list[Part] = []
        for text in texts:
            found = self._tokenizer.encode_with_offsets(text, special=special)
            spans = found.chars
            if self._template.trims:
                tokens = self.convert_ids_to_tokens(found.ids)
                spans = _rows.trimmed(tokens, spans, self._template.prefix_space)
            parts.append(Part(found.ids, spans))
        return parts

    def _truncated(
        self, parts: list[Part], room: int, stride: int, strategy: str, overflow: bool
    ) -> list[list[Part]]:
        """The parts of each row: one, or with `overflow` as many as it takes."""
        side = self.truncation_side
        if len(parts) == 1:
            if strategy == "only_second" and len(parts[0].ids) > room > 0:
                raise ValueError("truncation='only_second', but there is no second text")
            cut = _rows.chunks(parts[0], room, stride, side)
            return [[each] for each in cut] if overflow else [[cut[0]]]
        if overflow:
            raise NotImplementedError(
                "return_overflowing_tokens with pairs of texts is not known here"
            )
        lengths = _rows.lengths_of_pair(len(parts[0].ids), len(parts[1].ids), room, strategy)
        return [[_rows.chunks(part, n, 0, side)[0] for part, n in zip(parts, lengths)]]

    def _strategies(
        self,
        padding: bool | str,
        truncation: bool | str | None,
        max_length: int | None,
        multiple: int | None,
        verbose: bool,
    ) -> tuple[str, str, int | None]:
        """How to pad, how to truncate, and to what length."""
        if max_length is not None and padding is False and truncation is None:
            truncation = True
        pad = choice("padding", padding, PADDING)
        cut = choice("truncation", truncation, TRUNCATION)
        if padding is True and max_length is not None and cut == "do_not_truncate" and verbose:
            warnings.warn(
                "max_length says nothing with padding=True and no truncation; "
                "padding='max_length' pads to it",
                UserWarning,
                stacklevel=3,
            )
        if max_length is None:
            unlimited = self.model_max_length > LARGE
            if pad == "max_length":
                pad = "do_not_pad" if unlimited else pad
            if cut != "do_not_truncate":
                cut = "do_not_truncate" if unlimited else cut
            if pad == "max_length" or cut != "do_not_truncate":
                max_length = self.model_max_length
        if pad != "do_not_pad":
            self._check_pad_token()
            if cut != "do_not_truncate" and multiple and max_length and max_length % multiple:
                raise ValueError(
                    f"max_length={max_length} is not a multiple of pad_to_multiple_of={multiple}"
                )
        return pad, cut, max_length

    def _check_pad_token(self) -> None:
        if self.pad_token is None:
            raise ValueError(
                "there is no padding token to pad with\n"
                "hint: tokenizer.pad_token = tokenizer.eos_token, or "
                "tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
            )

    def _note_long(self, rows: Iterable[Row]) -> None:
        longest = max((len(row["input_ids"]) for row in rows), default=0)
        if longest > self.model_max_length:
            warn_once(f"there are rows of more ids than the {self.model_max_length} of the model")

    def encode(
        self,
        text: str,
        text_pair: str | None = None,
        *,
        return_tensors: str | None = None,
        **options: Any,
    ) -> Any:
        """The ids of a text or a pair, with the options of a call."""
        return self(text, text_pair, return_tensors=return_tensors, **options)["input_ids"]

    def encode_batch(self, texts: Sequence[Any], **options: Any) -> list[list[int]]:
        """The ids of many texts or pairs, with the options of a call."""
        ids: list[list[int]] = self(list(texts), **options)["input_ids"]
        return ids

    def batch_encode_plus(
        self, batch_text_or_text_pairs: Sequence[Any], **options: Any
    ) -> BatchEncoding:
        """A call, by its older name."""
        return self(list(batch_text_or_text_pairs), **options)

    def encode_plus(self, text: str, text_pair: str | None = None, **options: Any) -> BatchEncoding:
        """A call with one text or pair, by its older name."""
        return self(text, text_pair, **options)

    def tokenize(
        self, text: str, pair: str | None = None, add_special_tokens: bool = False
    ) -> list[str]:
        """The tokens of a text, spelled in the byte alphabet."""
        ids = self.encode(text, pair, add_special_tokens=add_special_tokens)
        tokens: list[str] = self.convert_ids_to_tokens(ids)
        return tokens

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Pads rows that are encoded already, as data collators do.

        They are a row or columns by name, or a list of rows. What padding does not concern, such as
        labels, is left as it is.
        """
        columns = columns_of(encoded_inputs)
        if "input_ids" not in columns:
            raise ValueError(f"there are no input_ids to pad, only {', '.join(columns)}")
        first = columns["input_ids"]
        if first is None or len(first) == 0:
            if return_attention_mask:
                columns["attention_mask"] = []
            return BatchEncoding(columns)
        found = kind_of(first)
        kind = tensor_kind(return_tensors) or found
        columns = {name: as_lists(column) for name, column in columns.items()}
        batched = isinstance(columns["input_ids"][0], list | tuple)
        rows = (
            [
                {name: column[i] for name, column in columns.items()}
                for i in range(len(columns["input_ids"]))
            ]
            if batched
            else [columns]
        )
        strategy = choice("padding", padding, PADDING)
        if strategy == "max_length" and max_length is None:
            max_length = self.model_max_length
            strategy = "do_not_pad" if max_length > LARGE else strategy
        if strategy != "do_not_pad":
            self._check_pad_token()
        size = max_length if strategy == "max_length" else None
        if size is None:
            size = max(len(row["input_ids"]) for row in rows)
        size = _rows.padded_length(size, pad_to_multiple_of)
        if return_attention_mask is None:
            return_attention_mask = "attention_mask" in self.model_input_names
        for row in rows:
            if return_attention_mask and "attention_mask" not in row:
                row["attention_mask"] = [1] * len(row["input_ids"])
            if strategy != "do_not_pad":
                _rows.pad_row(row, size, padding_side or self.padding_side, self.pad_token_id)
        if not batched:
            return BatchEncoding(rows[0], kind)
        return BatchEncoding({name: [row[name] for row in rows] for name in rows[0]}, kind)

    # --- decoding -----------------------------------------------------------------------------

    def decode(
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> Any:
        """The text of ids, or the texts of several lists of them; what is no id is left out.

        `clean_up_tokenization_spaces` is for tokenizers that lose spaces. Ours do not, and as
        transformers does for its byte-level ones, the text is left alone.
        """
        if clean_up_tokenization_spaces:
            warn_once("clean_up_tokenization_spaces would spoil the text, and is left undone")
        ids = as_list(token_ids)
        if isinstance(ids, Mapping):
            ids = as_list(ids["input_ids"])
        if isinstance(ids, int):
            ids = [ids]
        if len(ids) and isinstance(as_list(ids[0]), list | tuple):
            return [self._text(as_list(each), skip_special_tokens) for each in ids]
        return self._text(ids, skip_special_tokens)

    def _text(self, ids: Iterable[int], skip_special: bool) -> str:
        ids = [int(id) for id in ids]
        for id in ids:
            if not 0 <= id < 1 << 32:
                raise OverflowError(f"{id} is not an id: out of range")
        if skip_special:
            ids = [id for id in ids if id not in self._skipped]
        try:
            return self._tokenizer.decode(ids)
        except TokenizerError:
            return self._tokenizer.decode([id for id in ids if self._token(id) is not None])

    @functools.cached_property
    def _skipped(self) -> set[int]:
        plain = set(self._plain)
        return {id for t, id in self._tokenizer.special_tokens.items() if t not in plain}

    def batch_decode(
        self,
        sequences: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """The texts of lists of ids."""
        texts = self.decode(sequences, skip_special_tokens, clean_up_tokenization_spaces)
        return [texts] if isinstance(texts, str) else texts

    # --- files --------------------------------------------------------------------------------

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> tuple[str, ...]:
        """Writes tokenizer.json, tokenizer_config.json and chat templates, for transformers too.

        As with transformers, files of an earlier save are replaced.
        """
        said = json.loads(self._tokenizer.write("huggingface")[0])
        said["post_processor"] = self._post_processor
        for token in said["added_tokens"]:
            token["special"] = token["content"] not in self._plain
        for token in self._outside:
            said["model"]["vocab"].pop(token, None)
        config = self._config | self.special_tokens_map
        config |= {name: getattr(self, name) for name in SAVED}
        config |= {"tokenizer_class": "PreTrainedTokenizerFast"}
        if not self.extra_special_tokens:
            # transformers 4 reads a mapping there, and fails on a list, be it empty.
            del config["extra_special_tokens"]
        of_model = {name: t for name, t in self.special_tokens_map.items() if name not in NAMED}
        if of_model:
            config |= {"model_specific_special_tokens": of_model}
        directory = Path(save_directory)
        files = _chat_templates.files(self.chat_template)
        for name, value in {"tokenizer_config.json": config, "tokenizer.json": said}.items():
            files[name] = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        for name, text in files.items():
            file = directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            _files.write_atomically(file, text.encode())
        return tuple(str(directory / name) for name in files)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str], **options: Any
    ) -> PreTrainedTokenizerFast:
        """Reads a directory as `save_pretrained` leaves it, or a tokenizer.json.

        `options` are those of the constructor, and go before what the files say.
        """
        path = Path(pretrained_model_name_or_path)
        directory, file = (path, path / "tokenizer.json") if path.is_dir() else (path.parent, path)
        if not file.is_file():
            raise FileNotFoundError(
                f"{file}: there is no such file (only local ones are read here; "
                "bytemill.Tokenizer.from_pretrained asks the hub)"
            )
        try:
            said, added, config = _said_in(directory, file)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, TokenizerError):
                raise
            what = "not the configuration of a tokenizer"
            raise TokenizerError(f"{directory / CONFIG}: {what} ({error})") from None
        said["name_or_path"] = str(path)
        made = cls(tokenizer_file=file, **said | options)
        made._extend(added)
        made._make_special(made.all_special_tokens)
        made._config = config
        return made

    def __repr__(self) -> str:
        return (
            f"PreTrainedTokenizerFast(vocab_size={self.vocab_size}, "
            f"model_max_length={self.model_max_length}, padding_side={self.padding_side!r}, "
            f"special_tokens={self.special_tokens_map})"
        )


def _said_in(directory: Path, file: Path) -> tuple[Row, list[str], Row]:
    """What the files beside a tokenizer.json say: options, added tokens, and the rest."""
    config = read_json(directory / CONFIG)
    if "added_tokens_decoder" not in config:
        config |= read_json(directory / "special_tokens_map.json")
    older = config.pop("additional_special_tokens", None)
    extra = config.pop("extra_special_tokens", None) or older or []
    of_model = {
        name: config.pop(name)
        for name in [*config]
        if name.endswith("_token") and name not in NAMED and isinstance(config[name], str)
    }
    if isinstance(extra, Mapping):
        of_model |= extra
        extra = older or []
    of_model |= config.pop("model_specific_special_tokens", None) or {}
    added = [content(token) for token in config.pop("added_tokens_decoder", {}).values()]
    padding = read_json(file).get("padding") or {}
    template = config.pop("chat_template", None)
    said: Row = {
        "pad_token": padding.get("pad_token"),
        "extra_special_tokens": extra,
        "model_specific_special_tokens": of_model,
        # Templates in files go before the one of the configuration.
        "chat_template": _chat_templates.read(directory) or template,
    }
    # tokenizer.json decides which tokens are put around a text, in transformers too.
    for name in ("add_bos_token", "add_eos_token", "tokenizer_class"):
        config.pop(name, None)
    for name in (*NAMED, *SAVED):
        if name in config:
            said[name] = config.pop(name)
    for name in NAMED:
        if said.get(name) is not None:
            said[name] = content(said[name])
    return said, added, config
