"""The Rust core. Private: `bytemill.Tokenizer` and `bytemill.train_tokenizer` are the face."""

from collections.abc import Callable, Collection, Iterable, Sequence
from os import PathLike
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

__version__: str
UNICODE_VERSION: str
MAX_TOKENS: int
PATTERNS: tuple[str, ...]

Floats = npt.NDArray[np.float32]
Special = Literal["all", "none", "error"] | Collection[str]
# phase ("count", "gather", "merge", "encode", "shuffle", "verify"), how much is done, of how much
# (None: not known)
ProgressCallback = Callable[[str, int, int | None], None]

def known_pattern(pattern: str, /) -> str | None: ...
def regex_stage(regex: str, /) -> str: ...
def pattern_regex(name: str, /) -> str: ...
def split(pattern: Sequence[str], text: str | bytes, /) -> list[bytes]: ...
def default_threads() -> int: ...
def recognise(data: bytes, /) -> str | None: ...
def input_format(name: str, format: str | None = None, /) -> str: ...
def named_format(name: str, /) -> str | None: ...
def is_about(path: str, /) -> bool: ...
def chosen_by(path: str, include: Sequence[str], exclude: Sequence[str], /) -> str | None: ...
def not_text(head: bytes, /) -> str | None: ...

class Core:
    """A tokenizer's tables. Immutable, usable from many threads at once."""

    def __new__(cls, core: Core, /) -> Core: ...
    @staticmethod
    def build(
        tokens: Iterable[tuple[int, bytes]],
        merges: Iterable[tuple[bytes, bytes]] | None,
        special_tokens: Iterable[tuple[str, int | None]],
        pattern: Sequence[str],
        ignore_merges: bool,
    ) -> Core: ...
    @staticmethod
    def from_ranks(
        ranks: dict[bytes, int],
        special_tokens: Iterable[tuple[str, int | None]],
        pattern: Sequence[str],
    ) -> Core: ...
    @staticmethod
    def read(
        kind: str,
        files: Sequence[tuple[str, bytes]],
        pattern: Sequence[str],
        special_tokens: Iterable[tuple[str, int | None]],
    ) -> Core: ...
    def cache_limit(self) -> int: ...
    def set_cache_limit(self, limit: int) -> None: ...
    def write(self, kind: str) -> list[bytes]: ...
    def encode(self, text: str | bytes, special: Special = "all") -> list[int]: ...
    def encode_array(
        self, text: str | bytes, special: Special = "all", threads: int | None = None
    ) -> npt.NDArray[np.uint32]: ...
    def encode_flat(
        self, texts: Sequence[str | bytes], special: Special = "all", threads: int | None = None
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]: ...
    def encode_spans(
        self, text: str | bytes, special: Special = "all"
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]: ...
    def encode_piece(self, piece: bytes, /) -> list[int]: ...
    def count(self, text: str | bytes, special: Special = "all") -> int: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def decode_bytes(self, ids: Iterable[int]) -> bytes: ...
    def token_bytes(self, id: int, /) -> bytes: ...
    def token_id(self, token: str | bytes, /) -> int: ...
    def stream(self, special: Special = "all") -> Stream: ...
    def core_with_vocab_size(self, vocab_size: int) -> Core: ...
    def unreachable(self) -> list[int]: ...
    @property
    def vocab(self) -> dict[int, bytes]: ...
    @property
    def merges(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def special_tokens(self) -> dict[str, int]: ...
    @property
    def pattern(self) -> str | list[str]: ...
    @property
    def ignore_merges(self) -> bool: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def max_id(self) -> int: ...
    def __len__(self) -> int: ...

@final
class Stream:
    """Encodes a text that comes in parts."""

    def push(self, text: str | bytes, /) -> list[int]: ...
    def finish(self) -> list[int]: ...

@final
class Inputs:
    """The sources of a corpus."""

    def __new__(
        cls,
        entries: Sequence[tuple[str, str | None, tuple[int, int] | None, object | None]],
        *,
        text_field: str = "text",
        on_error: str = "stop",
        max_document: int | None = None,
        max_ratio: int | None = None,
        max_window: int | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> Inputs: ...
    def texts(
        self, special_tokens: Sequence[str], limits: Sequence[int], block_size: int
    ) -> Texts: ...
    @property
    def formats(self) -> list[str]: ...
    def __len__(self) -> int: ...

@final
class Texts:
    """Goes through text block by block."""

    def __iter__(self) -> Texts: ...
    def __next__(self) -> tuple[int, int, list[bytes]]: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def skipped(self) -> dict[str, int]: ...

@final
class Counts:
    """How often each piece occurs."""

    def __new__(
        cls,
        pattern: Sequence[str],
        special_tokens: Sequence[str],
        threads: int | None = None,
        used_once: bool = False,
    ) -> Counts: ...
    @staticmethod
    def open(
        path: str | PathLike[str],
        threads: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Counts: ...
    def set_limit(
        self, available: int, total: int, spill_dir: str | PathLike[str] | None = None
    ) -> None: ...
    def add_files(
        self,
        paths: Sequence[str] | Inputs,
        progress: ProgressCallback | None = None,
        block_size: int | None = None,
    ) -> None: ...
    def add_texts(self, texts: Sequence[str | bytes]) -> None: ...
    def merge(self, other: Counts, progress: ProgressCallback | None = None) -> None: ...
    def save(self, path: str | PathLike[str], progress: ProgressCallback | None = None) -> None: ...
    def gather(self, progress: ProgressCallback | None = None) -> None: ...
    def clear(self) -> None: ...
    def items(self) -> list[tuple[bytes, int]]: ...
    def top(self, n: int, /) -> list[tuple[bytes, int]]: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def pattern(self) -> list[str]: ...
    @property
    def special_tokens(self) -> list[str]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def skipped(self) -> dict[str, int]: ...
    @property
    def total(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> CountsIterator: ...

@final
class CountsIterator:
    """Goes through pieces and counts in byte order."""

    def __iter__(self) -> CountsIterator: ...
    def __next__(self) -> tuple[bytes, int]: ...

@final
class Passes:
    """What training does between products of matrices, in memory that is there already."""

    def __new__(
        cls, threads: int, *, openmp: str | None = None, level: str | None = None
    ) -> Passes: ...
    @staticmethod
    def levels() -> list[str]: ...
    def norm(
        self, x: Floats, weight: Floats, eps: float | None, out: Floats, scales: Floats
    ) -> None: ...
    def norm_back(
        self,
        x: Floats,
        weight: Floats,
        scales: Floats,
        residual: Floats | None,
        grad: Floats,
        weight_grad: Floats,
    ) -> None: ...
    def swiglu(self, gate: Floats, up: Floats, out: Floats) -> None: ...
    def swiglu_back(
        self, gate: Floats, up: Floats, grad: Floats, gate_grad: Floats, inner: Floats
    ) -> None: ...
    def cross_entropy(
        self, logits: Floats, targets: npt.NDArray[np.int64], factor: float | None
    ) -> float: ...
    def attend(
        self,
        # samples, tokens, heads, heads of keys and values, width of a head
        shape: tuple[int, int, int, int, int],
        inputs: tuple[Floats, Floats, Floats],
        rotation: tuple[Floats, Floats] | None,
        out: Floats,
        log_sums: Floats,
    ) -> None: ...
    def attend_back(
        self,
        shape: tuple[int, int, int, int, int],
        inputs: tuple[Floats, Floats, Floats],
        rotation: tuple[Floats, Floats] | None,
        outputs: tuple[Floats, Floats, Floats],
        grads: tuple[Floats, Floats, Floats],
    ) -> None: ...

@final
class LMDecoder:
    """The decode step of a language model. Weights and cache stay where they are: no copies."""

    def __new__(
        cls,
        *,
        embedding: Floats,
        # attention norm, query, key, value, output, feed-forward norm, gate, up, down
        layers: Sequence[Sequence[Floats]],
        final_norm: Floats,
        head: Floats,
        rotation: tuple[Floats, Floats] | None,
        cache: Floats,
        eps: float,
        threads: int,
    ) -> LMDecoder: ...
    def step(self, ids: Sequence[int], position: int, /) -> Floats: ...

def learn(
    counts: Counts,
    *,
    vocab_size: int,
    special_tokens: Sequence[str],
    tie_break: str,
    min_frequency: int,
    min_piece_count: int,
    max_token_length: int | None,
    extend_from: Core | None,
    progress: ProgressCallback | None = None,
) -> Core: ...
def tokens_by_size(core: Core, counts: Counts, /) -> npt.NDArray[np.uint64]: ...
def encode_range(
    core: Core,
    inputs: Sequence[str] | Inputs,
    sources: str,
    plan: Any,
    directory: str | PathLike[str],
    *,
    open: str = "[]",
    is_last: bool = True,
    threads: int | None = None,
    block_size: int | None = None,
    progress: ProgressCallback | None = None,
) -> str: ...
def deal_part(
    plan: Any,
    part: Any,
    outputs: Sequence[str],
    bits: int,
    progress: ProgressCallback | None = None,
) -> list[list[tuple[int, int]]]: ...
def assemble_shard(
    plan: Any,
    source: Any,
    directory: str | PathLike[str],
    progress: ProgressCallback | None = None,
) -> str: ...
def check_shard(
    directory: str | PathLike[str],
    plan: Any,
    shard: str,
    core: Core | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[list[str], int]: ...
def compare_with_sources(
    directory: str | PathLike[str],
    plan: Any,
    splits: str,
    core: Core,
    inputs: Sequence[str] | Inputs,
    text_bytes: int | None,
    progress: ProgressCallback | None = None,
) -> str | None: ...
