"""Encoding on Ray: tasks write the tokens of units below the output; as soon as the sizes of all
are known, tasks copy them together into shards.

This process sees numbers, and removes what is done with. The output must be on a file system that
all machines share.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..measures import estimated_text
from . import tasks
from .recipes import Recipe, bucket_bits, recipes
from .running import RETRIES, complete, got, tell_of_losses

if TYPE_CHECKING:
    from ..progress import Report
    from ..tokenizer import Tokenizer
    from .units import Unit

__all__ = ["Encoding"]


class Encoding:
    """Encodes units into parts, and makes shards of the parts.

    Args:
        ray: the module, connected.
        place: where the tokens are made.
        plan: what is to be written.
        report: who hears how far it is.
    """

    def __init__(self, ray: Any, place: tasks.Place, plan: dict[str, Any], report: Report) -> None:
        self._ray, self._place, self._plan, self._report = ray, place, plan, report
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)
        self._units: list[Unit] = []
        self._facts: list[tasks.Facts] = []
        self._width = 4
        # Documents that end before each part.
        self._before: list[int] = []
        self._lost = 0

    def run(self, tokenizer: Tokenizer, work: list[Unit]) -> tuple[list[int], int, dict[str, int]]:
        """Gives the number of shards of each split, the bytes of text, and what was skipped."""
        self._units = work
        wide = self._plan["dtype"] not in (None, "uint16") or tokenizer.max_id > 0xFFFF
        self._width = 4 if wide else 2
        self._encode(tokenizer)
        self._before = list(accumulate((facts[1] for facts in self._facts), initial=0))
        bits = bucket_bits(sum(facts[0] for facts in self._facts)) if self._plan["shuffle"] else 0
        room = self._plan["shard_tokens"] if self._plan["format"] == "shards" else None
        of_splits = [recipes(n, shares, room) for n, shares in enumerate(self._shares(bits))]
        # In the order of the parts, so that one after the other is done with.
        work_on = sorted((r for of_split in of_splits for r in of_split), key=lambda r: r.last)
        self._assemble(work_on, bits)
        skipped: Counter[str] = Counter()
        for facts in self._facts:
            skipped.update(facts[3])
        tell_of_losses(self._lost)
        text_bytes = sum(facts[2] for facts in self._facts)
        return [len(of_split) for of_split in of_splits], text_bytes, dict(skipped)

    def _encode(self, tokenizer: Tokenizer) -> None:
        os.makedirs(os.path.dirname(self._place.part(0)), exist_ok=True)
        encode, shared = self._task(tasks.encode), self._ray.put(tokenizer)
        found: dict[int, tasks.Facts] = {}
        total = sum(unit.size for unit in self._units)
        # Bytes of files, and the bytes of text that came of them.
        read = text = 0

        def finish(reference: Any, unit: Unit) -> None:
            nonlocal read, text
            found[unit.number] = self._got(reference)
            read += unit.size
            text += found[unit.number][2]
            self._report("encode", text, estimated_text(text, read, total))

        complete(
            self._ray,
            self._units,
            lambda unit: encode.remote(shared, self._place, unit, self._plan),
            finish,
        )
        self._facts = [found[unit.number] for unit in self._units]

    def _shares(self, bits: int) -> list[list[tuple[int, int]]]:
        """Ids and documents of each split, in every part or, if they are shuffled, bucket."""
        shuffle = self._plan["shuffle"]
        if not shuffle and self._plan["val_fraction"] is None:
            return [[facts[:2] for facts in self._facts]]
        deal = self._task(tasks.deal)
        n_splits = 1 if self._plan["val_fraction"] is None else 2
        n_shares = 1 << bits if shuffle else len(self._units)
        shares = [[(0, 0)] * n_shares for _ in range(n_splits)]
        total, done = sum(facts[0] for facts in self._facts), 0

        def finish(reference: Any, unit: Unit) -> None:
            nonlocal done
            for split, dealt in enumerate(self._got(reference)):
                for bucket, (tokens, documents) in enumerate(dealt):
                    place = bucket if shuffle else unit.number
                    old = shares[split][place]
                    shares[split][place] = (old[0] + tokens, old[1] + documents)
            done += self._facts[unit.number][0]
            self._report("shuffle", done * self._width, total * self._width)

        complete(
            self._ray,
            self._units,
            lambda unit: deal.remote(self._place, unit.number, self._before[unit.number], bits),
            finish,
        )
        return shares

    def _assemble(self, work: list[Recipe], bits: int) -> None:
        assemble, shuffle = self._task(tasks.assemble), self._plan["shuffle"]
        # How many shards each part is still needed for; shuffled, all are needed to the end.
        needed: Counter[int] = Counter()
        for recipe in [] if shuffle else work:
            needed.update(self._parts_of(recipe))

        def start(recipe: Recipe) -> Any:
            parts = [(number, self._before[number]) for number in self._parts_of(recipe)]
            buckets = (bits, recipe.first, recipe.last) if shuffle else None
            number = (recipe.split, recipe.number)
            return assemble.remote(self._place, *number, parts, buckets, recipe.before)

        total, done = sum(recipe.tokens for recipe in work), 0

        def finish(reference: Any, recipe: Recipe) -> None:
            nonlocal done
            self._got(reference)
            done += recipe.tokens
            self._report("write", done * self._width, total * self._width)
            if not shuffle:
                needed.subtract(self._parts_of(recipe))
                for number in self._parts_of(recipe):
                    if needed[number] == 0:
                        self._empty(number)

        complete(self._ray, work, start, finish)

    def _got(self, reference: Any) -> Any:
        """What a task gave; how often it was begun before is noted."""
        given, lost = got(self._ray, reference)
        self._lost += lost
        return given

    def _parts_of(self, recipe: Recipe) -> range:
        # A bucket of shuffled documents is in every part.
        if self._plan["shuffle"]:
            return range(len(self._units))
        return range(recipe.first, recipe.last + 1)

    def _empty(self, number: int) -> None:
        """Removes the tokens of a part; what is known of it stays, for a run that is resumed."""
        part = self._place.part(number)
        for entry in os.scandir(part):
            if entry.name not in ("manifest.json", "dealt.json"):
                os.unlink(entry.path)
