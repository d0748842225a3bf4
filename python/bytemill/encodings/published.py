"""The published encodings: their patterns, special tokens and rank files, and models that use them.

A rank file is identified by its SHA-256. Several encodings share one: they differ in their special
tokens only.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..formats import PatternName

__all__ = [
    "ENCODINGS",
    "GPT2_MERGES_URL",
    "MODELS",
    "PREFIXES",
    "RANKS",
    "Definition",
    "Ranks",
    "definition",
]

# The publisher's address.
ADDRESS = "https://openaipublic.blob.core.windows.net"
# GPT-2's merges; the ranks follow from them.
GPT2_MERGES_URL = f"{ADDRESS}/gpt-2/encodings/main/vocab.bpe"


@dataclass(frozen=True)
class Ranks:
    """A rank file.

    Attributes:
        name: such as `cl100k_base`.
        sha256: of the file.
        size: of the file, in bytes.
        n_tokens: number of lines.
    """

    name: str
    sha256: str
    size: int
    n_tokens: int

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.name}.tiktoken"

    @property
    def url(self) -> str:
        """The address of the published file."""
        return f"{ADDRESS}/encodings/{self.file}"

    def matches(self, data: bytes | bytearray) -> bool:
        """Whether `data` is the contents of this file."""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256


@dataclass(frozen=True)
class Definition:
    """The definition of an encoding.

    Attributes:
        name: such as `o200k_harmony`.
        ranks: the name of its rank file.
        pattern: its split pattern.
        special_tokens: special tokens and their ids.
        aliases: further special tokens of tiktoken that share an id with one of these.
    """

    name: str
    ranks: str
    pattern: PatternName
    special_tokens: Mapping[str, int]
    aliases: Mapping[str, int] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return RANKS[self.ranks].n_tokens + len(self.special_tokens)


RANKS = {
    ranks.name: ranks
    for ranks in (
        Ranks(
            "r50k_base",
            "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
            835_554,
            50_256,
        ),
        Ranks(
            "p50k_base",
            "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
            836_186,
            50_280,
        ),
        Ranks(
            "cl100k_base",
            "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            1_681_126,
            100_256,
        ),
        Ranks(
            "o200k_base",
            "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            3_613_922,
            199_998,
        ),
    )
}

END, PROMPT_END = "<|endoftext|>", "<|endofprompt|>"
PREFIX, MIDDLE, SUFFIX = "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"
O200K = {END: 199_999, PROMPT_END: 200_018}
HARMONY = {
    "startoftext": 199_998,
    "return": 200_002,
    "constrain": 200_003,
    "channel": 200_005,
    "start": 200_006,
    "end": 200_007,
    "message": 200_008,
    "call": 200_012,
}


def _harmony() -> dict[str, int]:
    """The special tokens of `o200k_harmony`: ids without a name are reserved."""
    named = O200K | {f"<|{name}|>": id for name, id in HARMONY.items()}
    free = (id for id in range(200_000, 201_088) if id not in named.values())
    return named | {f"<|reserved_{id}|>": id for id in free}


ENCODINGS = {
    encoding.name: encoding
    for encoding in (
        Definition("gpt2", "r50k_base", "gpt2", {END: 50_256}),
        Definition("r50k_base", "r50k_base", "gpt2", {END: 50_256}),
        Definition("p50k_base", "p50k_base", "gpt2", {END: 50_256}),
        Definition(
            "p50k_edit",
            "p50k_base",
            "gpt2",
            {END: 50_256, PREFIX: 50_281, MIDDLE: 50_282, SUFFIX: 50_283},
        ),
        Definition(
            "cl100k_base",
            "cl100k_base",
            "cl100k",
            {
                END: 100_257,
                PREFIX: 100_258,
                MIDDLE: 100_259,
                SUFFIX: 100_260,
                PROMPT_END: 100_276,
            },
        ),
        Definition("o200k_base", "o200k_base", "o200k", O200K),
        Definition(
            "o200k_harmony",
            "o200k_base",
            "o200k",
            _harmony(),
            aliases={"<|reserved_200018|>": O200K[PROMPT_END]},
        ),
    )
}


def definition(name: str) -> Definition:
    """The definition of the encoding of this name."""
    if name in ENCODINGS:
        return ENCODINGS[name]
    near = difflib.get_close_matches(str(name), ENCODINGS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(ENCODINGS)}"
    raise ConfigError(f"unknown encoding {name!r}", hint)


_MODELS = {
    "gpt2": "gpt2 gpt-2",
    "r50k_base": """
        text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 davinci curie babbage ada
        text-similarity-davinci-001 text-similarity-curie-001 text-similarity-babbage-001
        text-similarity-ada-001 text-search-davinci-doc-001 text-search-curie-doc-001
        text-search-babbage-doc-001 text-search-ada-doc-001 code-search-babbage-code-001
        code-search-ada-code-001
    """,
    "p50k_base": """
        text-davinci-003 text-davinci-002 code-davinci-002 code-davinci-001 code-cushman-002
        code-cushman-001 davinci-codex cushman-codex
    """,
    "p50k_edit": "text-davinci-edit-001 code-davinci-edit-001",
    "cl100k_base": """
        gpt-4 gpt-3.5-turbo gpt-3.5 gpt-35-turbo davinci-002 babbage-002 text-embedding-ada-002
        text-embedding-3-small text-embedding-3-large
    """,
    "o200k_base": "o1 o3 o4-mini gpt-5 gpt-4.1 gpt-4o",
}
# Prefixes of model names, such as that of gpt-4o-2024-05-13.
_PREFIXES = {
    "cl100k_base": """
        gpt-4- gpt-3.5-turbo- gpt-35-turbo- ft:gpt-4 ft:gpt-3.5-turbo ft:davinci-002
        ft:babbage-002
    """,
    "o200k_base": "o1- o3- o4-mini- gpt-5 gpt-4.5- gpt-4.1- chatgpt-4o- gpt-4o- ft:gpt-4o",
    "o200k_harmony": "gpt-oss-",
}


def _by_name(table: Mapping[str, str]) -> dict[str, str]:
    return {name: encoding for encoding, names in table.items() for name in names.split()}


# Model → encoding, and prefix → encoding; the longest matching prefix wins.
MODELS = _by_name(_MODELS)
PREFIXES = _by_name(_PREFIXES)
