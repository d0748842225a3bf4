"""Files → tokens on disk: what is asked for, before Rust does it."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import _files, _native
from .corpus import CorpusLike, has_stdin, refuse_no_text, resolve
from .engines import Engine, chosen
from .errors import ConfigError, TokenizerError, TokensError
from .progress import ProgressOption, reporter
from .tokens import Tokens

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

__all__ = ["SHARD_TOKENS", "TokenFormat", "encode_files", "end_of_text", "writing"]

SHARD_TOKENS = 100_000_000
# What the vocabularies of others call it.
END_OF_TEXTS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>")
TokenFormat = Literal["shards", "npy", "bin", "megatron"]


def encode_files(
    tokenizer: Tokenizer,
    corpus: CorpusLike,
    out: str | os.PathLike[str],
    *,
    shard_tokens: int = SHARD_TOKENS,
    append_eot: bool = True,
    eot: str | None = None,
    dtype: Any = None,
    format: TokenFormat = "shards",
    val_fraction: float | None = None,
    shuffle: bool = False,
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    engine: str | Engine = "local",
    progress: ProgressOption = None,
) -> Tokens:
    """See `Tokenizer.encode_files`."""
    resolved = resolve(corpus)
    if resume and overwrite:
        raise ConfigError("resume=True contradicts overwrite=True", "give one of them")
    if resume and resolved.texts is not None:
        raise ConfigError("an iterator cannot be read again", "resume with files or a dataset")
    if resume and has_stdin(resolved):
        raise ConfigError("stdin cannot be read again", "resume with files")
    entries = resolved.entries()
    _check_place(Path(out), [entry.path for entry in entries if entry.path is not None])
    # How large records are that somebody else gives, is not known yet.
    known = all(entry.size or entry.reader is None for entry in entries)
    refuse_no_text(sum(entry.size for entry in entries) if known else 1, corpus)
    plan = {
        "format": format,
        "dtype": _dtype_name(dtype),
        "shard_tokens": _whole("shard_tokens", shard_tokens),
        "end_of_text": end_of_text(tokenizer, eot, append_eot),
        "append_eot": append_eot,
        "val_fraction": val_fraction,
        "shuffle": shuffle,
        "seed": _whole("seed", seed),
        "tokenizer_file": _tokenizer_file(tokenizer),
        "existing": "resume" if resume else "overwrite" if overwrite else "refuse",
        "threads": threads,
    }
    with writing(Path(out)), reporter(progress) as report:
        chosen(engine).encode(tokenizer, resolved, entries, out, plan, report)
    return Tokens(out, "all" if val_fraction is None else "train")


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Makes a directory of tokens, if it is not there, and is the only one to write into it."""
    made = False
    try:
        out.mkdir()
        made = True
    except FileExistsError:
        if not out.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out)) from None
    try:
        with _files.writer_lock(out / ".lock", out, TokensError):
            yield
    finally:
        # Where nothing was begun, nothing is left.
        if made:
            with contextlib.suppress(OSError):
                out.rmdir()


def _tokenizer_file(tokenizer: _native.Core) -> bytes | None:
    """The tokenizer as it goes into the directory; None if its format cannot hold it."""
    try:
        return tokenizer.write("huggingface")[0]
    except TokenizerError as error:
        warnings.warn(
            f"the tokens will not carry their tokenizer, which tokenizer.json cannot hold: "
            f"{error.message}",
            UserWarning,
            stacklevel=4,
        )
        return None


def end_of_text(tokenizer: _native.Core, eot: str | None, append_eot: bool) -> str | None:
    """The special token that ends documents."""
    known = tokenizer.special_tokens
    if eot is not None:
        if eot not in known:
            raise ConfigError(
                f"eot={eot!r} is not a special token of the tokenizer",
                f"its special tokens are {', '.join(map(repr, known)) or 'none at all'}",
            )
        return eot
    usual = [text for text in END_OF_TEXTS if text in known] or list(known)
    if len(usual) == 1 or usual[:1] == [END_OF_TEXTS[0]]:
        return usual[0]
    if not append_eot:
        return None
    if not usual:
        raise ConfigError(
            "the tokenizer has no special token to end documents with",
            "append_eot=False appends none",
        )
    raise ConfigError(
        f"which special token ends documents? The tokenizer has {', '.join(map(repr, usual))}",
        "name it with eot=, or append none with append_eot=False",
    )


def _check_place(out: Path, paths: list[str]) -> None:
    if out.suffix in (".npy", ".bin", ".idx", ".json"):
        raise ConfigError(
            f"{out}: tokens go into a directory, and this looks like a file",
            "name a directory; the files in it get names of their own",
        )
    inside = os.path.join(os.path.realpath(out), "")
    for path in paths:
        if os.path.realpath(path).startswith(inside):
            raise ConfigError(
                f"{path}: this source lies in the directory that tokens go into",
                "name another directory",
            )


def _dtype_name(dtype: Any) -> str | None:
    if dtype is None:
        return None
    if isinstance(dtype, str):
        return dtype
    import numpy as np

    return str(np.dtype(dtype).name)


def _whole(name: str, value: int) -> int:
    if not 0 <= value < 2**64:
        raise ConfigError(f"{name} must be from 0 to 2**64 - 1, got {str(value)[:40]}")
    return value
