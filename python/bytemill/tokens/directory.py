"""The directory that tokens are written into, and how unfinished work becomes tokens.

    tokens/.lock                   held while a process writes
    tokens/.partial/               unfinished work
    tokens/.partial/plan.json      what is being written
    tokens/.partial/parts-…/       a record of every finished part, see `parts`
    tokens/.partial/manifest.json  all files are complete and are being moved
    tokens/.partial/replaced.json  the manifest of the tokens that are being replaced
    tokens/manifest.json           finished

When a directory is overwritten, its old content is untouched until the new one is complete. Then
the old manifest is moved away, the new files replace the old ones, other files that the old
manifest names are deleted, and the new manifest is written last. Each step can be repeated: a
process that is killed meanwhile leaves a directory without a manifest, and the next process
continues. A file that no manifest of bytemill names is never replaced or deleted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .. import _files
from .._records import read_record, write_record
from ..errors import ConfigError, TokensError
from . import manifest as manifests
from .plan import Plan, check_same

__all__ = ["Existing", "TokenDirectory", "writing"]

Existing: TypeAlias = Literal["refuse", "resume", "overwrite"]

LOCK = ".lock"
PLAN = "plan.json"
REPLACED = "replaced.json"
# A cluster task may still write for a moment after it was cancelled.
REMOVE_ATTEMPTS = 40
REMOVE_WAIT = 0.05


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Creates a directory of tokens, if it does not exist, and locks it for this process."""
    made = False
    try:
        out.mkdir()
        made = True
    except FileExistsError:
        if not out.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(out)) from None
    try:
        with _files.writer_lock(out / LOCK, out, TokensError):
            yield
    finally:
        # Remove the directory again if nothing was written.
        if made:
            with contextlib.suppress(OSError):
                out.rmdir()


# --- the directory ------------------------------------------------------------------------------


class TokenDirectory:
    """A directory that this process has locked.

    Attributes:
        path: the directory.
        partial: where unfinished files are.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.partial = path, path / manifests.PARTIAL

    @property
    def has_tokens(self) -> bool:
        """Whether there are tokens that the job replaces."""
        return bool(self._names())

    def begin(self, plan: Plan, existing: Existing) -> bool:
        """Starts, resumes or refuses the job; False if its result exists already."""
        complete = (self.partial / manifests.NAME).exists()
        begun = None if complete else self._plan(existing)
        if not complete and begun is None:
            # Left by a process that was killed before it started, or after it had finished.
            self.discard()
            return self._start_over(plan, existing)
        if existing == "refuse":
            raise ConfigError(
                f"{self.path}: contains the files of an interrupted run",
                "resume=True continues it, overwrite=True starts over",
            )
        if existing == "overwrite":
            if complete:
                self._publish()  # some of the files may have been moved already
            else:
                self.discard()
            return self._start_over(plan, existing)
        if complete:
            manifest = manifests.read_manifest(self.partial)
            check_same(self.path, Plan.of(manifest), plan)
            self._publish()
            return False
        check_same(self.path, Plan.of(begun or {}), plan)
        return True

    def _plan(self, existing: Existing) -> Any:
        """The plan of unfinished work; None if there is none."""
        try:
            return read_record(self.partial / PLAN, TokensError)
        except TokensError:
            if existing != "overwrite":
                raise
            return {}

    def _start_over(self, plan: Plan, existing: Existing) -> bool:
        names = self._names()
        if names:
            finished = manifests.NAME in names
            if existing == "resume" and finished:
                manifest = manifests.read_manifest(self.path)
                check_same(self.path, Plan.of(manifest), plan)
                return False
            if existing != "overwrite":
                raise FileExistsError(f"{self.path}: exists already (overwrite=True replaces it)")
            self._refuse_foreign(names, finished)
        self.partial.mkdir()
        # Flushed by `save`, while the work is already under way.
        write_record(self.partial / PLAN, plan.fields(), flush=False)
        return True

    def _refuse_foreign(self, names: list[str], finished: bool) -> None:
        ours: set[str] = set()
        if finished:
            try:
                ours = manifests.named_files(self.path / manifests.NAME)
            except TokensError:
                raise _not_ours(self.path, manifests.NAME) from None
            ours.add(manifests.NAME)
        for name in names:
            # A file whose name tokens never have may stay beside them.
            if name not in ours and (not finished or manifests.is_possible(name)):
                raise _not_ours(self.path, name)

    def _names(self) -> list[str]:
        """The names in the directory, without unfinished work and temporary files."""
        hidden = (LOCK, manifests.PARTIAL)
        return [
            name
            for name in os.listdir(self.path)
            if name not in hidden and not (name.startswith(".") and name.endswith(_files.SUFFIX))
        ]

    def discard(self) -> None:
        """Removes unfinished work."""
        names = os.listdir(self.partial) if self.partial.is_dir() else []
        for name in names:
            if not _is_work(name):
                raise _not_ours(self.partial, name)
        for attempt in range(REMOVE_ATTEMPTS + 1):
            try:
                _files.remove_tree(self.partial)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.ENOTEMPTY or attempt == REMOVE_ATTEMPTS:
                    raise
                time.sleep(REMOVE_WAIT)

    # --- resuming -------------------------------------------------------------------------------

    def records(self, kind: str, plan: Plan) -> Path:
        """The directory of the records of parts; removes other unfinished work."""
        folder = self.partial / f"{kind}-{plan.id}"
        if not folder.is_dir():
            for path in self.partial.iterdir():
                if path.name != PLAN:
                    _files.remove_tree(path) if path.is_dir() else path.unlink()
            folder.mkdir()
        return folder

    # --- finishing ------------------------------------------------------------------------------

    def save(self, tokenizer_file: bytes | None) -> None:
        """Writes the tokenizer, if there is one, and flushes it and the plan."""
        changed = [self.partial / PLAN, self.partial]
        if tokenizer_file is not None:
            path = self.partial / manifests.TOKENIZER
            _files.write_atomically(path, tokenizer_file, flush=False)
            changed.append(path)
        _files.sync_all(changed)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Moves complete and synced files to their place, and writes the manifest last."""
        path = self.partial / manifests.NAME
        data = manifests.to_json(manifest)
        manifests.parse(data, path)
        _files.write_atomically(path, data)
        self._publish()

    def _publish(self) -> None:
        new = manifests.read_manifest(self.partial)
        # Without a plan and a manifest, the remaining files are known to be useless.
        (self.partial / PLAN).unlink(missing_ok=True)
        replaced = self.partial / REPLACED
        with contextlib.suppress(FileNotFoundError):
            os.replace(self.path / manifests.NAME, replaced)
        old: set[str] = set()
        if replaced.exists():
            old = manifests.named_files(replaced)
            # No file of the old tokens may change while their manifest could still be restored.
            _files.sync_all([self.partial, self.path])
        for name, size in manifests.files(new):
            try:
                os.replace(self.partial / name, self.path / name)
            except FileNotFoundError:
                # A process that was killed afterwards may have moved it already.
                if not _has_size(self.path / name, size):
                    raise
            old.discard(name)
        for name in old:
            (self.path / name).unlink(missing_ok=True)
        _files.sync_all([self.partial, self.path])
        os.replace(self.partial / manifests.NAME, self.path / manifests.NAME)
        _files.sync(self.path)
        self.discard()


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _is_work(name: str) -> bool:
    """Whether this may be the name of unfinished work."""
    return (
        name in (manifests.NAME, REPLACED, PLAN)
        or name.startswith(("parts-", "shards-"))
        or manifests.is_possible(name)
        or manifests.is_possible(name.removesuffix(".json") + ".npy")
        or _files.is_temporary(name)
        or name.endswith(".tmp")
    )


def _not_ours(place: Path, name: str) -> ConfigError:
    return ConfigError(
        f"{place}: contains files that are not tokens, such as {name}; they are never overwritten",
        "choose a new or empty directory or one of tokens, or move the file away",
    )
