"""Seeded choices of the reference compiler."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Seeded choices; only `random()` is used, whose stream Python guarantees."""

    def __init__(self, seed: int, salt: str) -> None:
        self._random = random.Random(f"engineset reference map {seed} {salt}")
        self.published = seed == 0

    def pick(self, published: T, *others: T) -> T:
        """`published` for seed 0, otherwise one of all choices."""
        choices = (published, *others)
        drawn = choices[int(self._random.random() * len(choices))]
        return published if self.published else drawn

    def below(self, n: int) -> int:
        return int(self._random.random() * n)

    def shuffle(self, items: Iterable[T]) -> list[T]:
        return [item for _, item in sorted(((self._random.random(), item) for item in items), key=lambda pair: pair[0])]
