"""The tokens of a `PreTrainedTokenizerFast`: the vocabulary, and which tokens have a name.

A tokenizer.json knows more than our tokenizers do: which added tokens decoding skips, which of them
the model does not count as its own, and what stands around a text. That is kept here.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import formats
from .._files import regular
from ..errors import TokenizerError
from ..tokenizer import Tokenizer
from . import _rows
from ._alphabet import bytes_of, spelled
from ._arguments import as_list

NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# What is derived from the tokenizer when it is first needed.
CACHED = ("_special_ids", "_vocabulary", "_skipped")


def _named(name: str) -> Any:
    def get(self: NamedTokens) -> str | None:
        return self._names[name]

    def put(self: NamedTokens, value: Any) -> None:
        self._name(name, value)

    return property(get, put, doc=f"The `{name}`, or None.")


def _named_id(name: str) -> Any:
    def get(self: NamedTokens) -> int | None:
        token = self._names[name]
        return None if token is None else self._vocabulary[token]

    def put(self: NamedTokens, value: int | None) -> None:
        token = None if value is None else self._token(value)
        if value is not None and token is None:
            raise ValueError(f"{name}_id={value} is not in the vocabulary")
        self._name(name, token)

    return property(get, put, doc=f"The id of the `{name}`, or None.")


class NamedTokens:
    """A vocabulary in which some tokens have a name."""

    bos_token, bos_token_id = _named("bos_token"), _named_id("bos_token")
    eos_token, eos_token_id = _named("eos_token"), _named_id("eos_token")
    unk_token, unk_token_id = _named("unk_token"), _named_id("unk_token")
    sep_token, sep_token_id = _named("sep_token"), _named_id("sep_token")
    pad_token, pad_token_id = _named("pad_token"), _named_id("pad_token")
    cls_token, cls_token_id = _named("cls_token"), _named_id("cls_token")
    mask_token, mask_token_id = _named("mask_token"), _named_id("mask_token")
    pad_token_type_id = 0

    # The names that a model brings, such as image_token, are attributes too.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            names = self.__dict__.get("_names", {})
            if name in names:
                return names[name]
            if name.removesuffix("_id") in names:
                token = names[name.removesuffix("_id")]
                return None if token is None else self._vocabulary[token]
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

        def __setattr__(self, name: str, value: Any) -> None:
            names = self.__dict__.get("_names", {})
            plain = name.removesuffix("_id")
            if plain not in names or plain in NAMED:
                super().__setattr__(name, value)
            elif name == plain:
                self._name(name, value)
            else:
                _named_id(plain).fset(self, value)

    def __init__(self, given: Any, file: str | os.PathLike[str] | None) -> None:
        if (given is None) == (file is None):
            raise TypeError("give a tokenizer or a tokenizer_file, one of them")
        if isinstance(given, Tokenizer):
            self._tokenizer = given
            said = json.loads(given.write("huggingface")[0])
        else:
            if file is not None:
                name, data = str(file), regular(Path(file), TokenizerError).read_bytes()
            else:
                name, data = type(given).__name__, formats.huggingface_json(given)
            self._tokenizer = Tokenizer._parse(name, data)
            said = json.loads(data)
        # Those of NAMED, then those of the model.
        self._names: dict[str, str | None] = dict.fromkeys(NAMED)
        self._extra: list[str] = []
        self._add_bos_token = self._add_eos_token = False
        self._process(said["post_processor"])
        added, vocab = said["added_tokens"], said["model"]["vocab"]
        # Added tokens that decoding does not skip, and those that the model does not count.
        self._plain = sorted(token["content"] for token in added if not token["special"])
        self._outside = sorted(t["content"] for t in added if t["content"] not in vocab)

    def _process(self, post_processor: dict[str, Any] | None) -> None:
        """Takes a post-processor, as in a tokenizer.json."""
        self._post_processor = post_processor
        self._template = _rows.template_of(post_processor)

    # --- special tokens -----------------------------------------------------------------------

    def add_special_tokens(self, special_tokens_dict: Mapping[str, Any]) -> int:
        """Names special tokens, and adds those that are not in the vocabulary; says how many.

        Keys are `pad_token` and the like, names that the model has, or `extra_special_tokens`
        (older: `additional_special_tokens`) with a list, which takes the place of the one before.
        """
        n_added = self._name_all(special_tokens_dict)
        self._make_special(self.all_special_tokens)
        return n_added

    def _name_all(self, special_tokens_dict: Mapping[str, Any]) -> int:
        named: dict[str, str] = {}
        extra: list[str] = []
        for name, value in special_tokens_dict.items():
            if name in self._names:
                named[name] = content(value)
            elif name not in ("extra_special_tokens", "additional_special_tokens"):
                known = ", ".join(self._names)
                raise ValueError(f"{name!r} is none of {known}, extra_special_tokens")
            elif isinstance(value, list | tuple):
                extra = [content(each) for each in value]
            else:
                raise ValueError(f"{name} must be a list of tokens, got {value!r}")
        n_added = self._extend([*named.values(), *extra])
        self._names |= named
        if extra:
            self._extra = extra
        return n_added

    def _take_names(self, names: Iterable[str]) -> None:
        """From now on tokens may have these names too."""
        for name in names:
            if not name.isidentifier() or hasattr(type(self), name):
                raise ValueError(f"extra_special_tokens: {name!r} cannot be the name of a token")
            self._names.setdefault(name, None)

    def _make_special(self, tokens: Iterable[str]) -> None:
        """From now on decoding skips these."""
        self._plain = sorted(set(self._plain) - set(tokens))
        self._forget()

    def _extend(self, tokens: Iterable[str]) -> int:
        known = self._tokenizer.special_tokens
        new = [token for token in dict.fromkeys(tokens) if token not in self._vocabulary]
        if new:
            old, first = self._tokenizer, self._tokenizer.max_id + 1
            self._tokenizer = Tokenizer(
                {id: token for id, token in old.vocab.items() if id not in self._special_ids},
                old.merges,
                known | {token: first + i for i, token in enumerate(new)},
                pattern=old.pattern,
                ignore_merges=old.ignore_merges,
            )
            self._outside = sorted([*self._outside, *new])
            self._forget()
        return len(new)

    def _name(self, name: str, value: Any) -> None:
        token = None if value is None else content(value)
        if token is not None and token not in self._vocabulary:
            raise ValueError(
                f"{name}={token!r} is not in the vocabulary\n"
                f"hint: add_special_tokens({{{name!r}: {token!r}}}) adds it"
            )
        self._names[name] = token

    @property
    def add_bos_token(self) -> bool:
        """Whether assignment or the constructor put `bos_token` before every text.

        Assigning either flag replaces what the tokenizer says of tokens around a text, as in
        transformers. A token that is not set is not added.
        """
        return self._add_bos_token

    @add_bos_token.setter
    def add_bos_token(self, value: bool) -> None:
        self._add_bos_token = value
        self._surround()

    @property
    def add_eos_token(self) -> bool:
        """Whether assignment or the constructor put `eos_token` after every text."""
        return self._add_eos_token

    @add_eos_token.setter
    def add_eos_token(self, value: bool) -> None:
        self._add_eos_token = value
        self._surround()

    def _surround(self) -> None:
        self._add_bos_token = self._add_bos_token and self.bos_token is not None
        self._add_eos_token = self._add_eos_token and self.eos_token is not None
        before = (self.bos_token, self.bos_token_id) if self._add_bos_token else None
        after = (self.eos_token, self.eos_token_id) if self._add_eos_token else None
        self._process(_rows.around(before, after))

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The named special tokens that are set."""
        return {name: token for name, token in self._names.items() if token is not None}

    @property
    def extra_special_tokens(self) -> list[str]:
        """Special tokens without a name."""
        return list(self._extra)

    @property
    def all_special_tokens(self) -> list[str]:
        """The named special tokens and the extra ones."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self._extra]))

    @property
    def all_special_ids(self) -> list[int]:
        """Their ids."""
        return [self._vocabulary[token] for token in self.all_special_tokens]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """How many special tokens stand around a text, or a pair of texts."""
        return self._template.n_added(pair)

    def get_special_tokens_mask(
        self,
        token_ids_0: Iterable[int],
        token_ids_1: None = None,
        already_has_special_tokens: bool = False,
    ) -> list[int]:
        """1 for each special id of a finished row, 0 for the others."""
        if token_ids_1 is not None or not already_has_special_tokens:
            raise NotImplementedError("a mask is made of finished rows only")
        special = set(self.all_special_ids)
        return [int(id in special) for id in as_list(token_ids_0)]

    # --- the vocabulary -----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __bool__(self) -> bool:
        return True

    @property
    def vocab_size(self) -> int:
        """How many tokens the model has, without those added to it."""
        return len(self._tokenizer) - len(self._outside)

    def get_vocab(self) -> dict[str, int]:
        """Tokens, spelled in the byte alphabet, and their ids."""
        return dict(self._vocabulary)

    vocab = property(get_vocab)

    def get_added_vocab(self) -> dict[str, int]:
        """The added tokens and their ids."""
        return dict(sorted(self._tokenizer.special_tokens.items(), key=lambda item: item[1]))

    @functools.cached_property
    def _special_ids(self) -> set[int]:
        return set(self._tokenizer.special_tokens.values())

    @functools.cached_property
    def _vocabulary(self) -> dict[str, int]:
        special, vocab = self._tokenizer.special_tokens, self._tokenizer.vocab
        ids = self._special_ids
        return {spelled(token): id for id, token in vocab.items() if id not in ids} | special

    def _forget(self) -> None:
        for name in CACHED:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        # What is only remembered is left out: `datasets` takes a changed pickle for another
        # tokenizer, and would do all work again.
        return {name: value for name, value in self.__dict__.items() if name not in CACHED}

    def _id(self, token: str) -> int | None:
        unknown: int | None = self.unk_token_id
        return self._vocabulary.get(token, unknown)

    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> Any:
        """The id of a token, or the ids of several; that of the unknown token for unknown ones."""
        return self._id(tokens) if isinstance(tokens, str) else [self._id(t) for t in tokens]

    def convert_ids_to_tokens(
        self, ids: int | Iterable[int], skip_special_tokens: bool = False
    ) -> Any:
        """The token of an id, or the tokens of several; None for what is no id."""
        if isinstance(ids, int):
            return self._token(ids)
        skipped = set(self.all_special_ids) if skip_special_tokens else set()
        return [self._token(id) for id in as_list(ids) if id not in skipped]

    def _token(self, id: int) -> str | None:
        try:
            token = self._tokenizer.token_bytes(id)
        except TokenizerError:
            return None
        return token.decode() if id in self._special_ids else spelled(token)

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """The text that tokens spell."""
        return b"".join(map(bytes_of, tokens)).decode("utf-8", "replace")


def content(token: Any) -> str:
    """The text of a token: a string, an `AddedToken`, or one as a configuration has it."""
    if isinstance(token, str):
        return token
    said = token if isinstance(token, Mapping) else getattr(token, "__getstate__", dict)()
    if not isinstance(said, Mapping) or "content" not in said:
        raise TypeError(f"a special token must be a string, not {type(token).__name__}")
    for flag in ("lstrip", "rstrip", "single_word"):
        if said.get(flag):
            raise TokenizerError(
                f"the special token {said['content']!r} has {flag}, which is not known here"
            )
    return str(said["content"])
