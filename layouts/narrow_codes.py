"""Words of narrow matrices, in whose rows the largest magnitude has to be put somewhere in every build (docs/markers.md)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from layouts.codes import U8, U32, Code, builds_for
from layouts.integers import Int8

NARROW = 16
"""Rows of fewer columns hold no whole aligned run of elements, and so no largest magnitude by themselves."""
NARROW_BUILDS = 7

FIRST_INNER, INNER = 2, 12
"""Coarse nibbles 2 to 13 and their fine ones are no nibbles of a largest magnitude, which are 15 and 0 or 1."""
FACTORS = (1, 5, 7, 11, 1, 5, 7, 11)


def builds_needed(codec: str, shapes: Iterable[tuple[int, int]]) -> int:
    """Builds that the matrices of an engine need. Raises DecodeRefused."""
    shapes = list(shapes)
    narrow = any(cols < NARROW for _, cols in shapes)
    return max(builds_for(codec, sum(rows * cols for rows, cols in shapes)), NARROW_BUILDS if narrow else 0)


class NarrowCode:
    """Integers of narrow matrices. Their words are distinct and none of a wide matrix' words is one of a single column.

    Of more than one column: in a build, element (r, c) holds the largest magnitude if its phase, (c - r) mod columns, is
    the build mod columns. Its number has a digit of base 2 there, which is the sign, and one of base 12 elsewhere. In the
    last build coarse nibbles are even, as all others are. The nibbles show where the largest magnitudes are, and so the bases.

    Of one column: -1, 0 or 1 times the largest magnitude, so a row of a single 0 here and there. Every word has all three, so
    that no nibble of an entry spells one, and no set of zeros that a phase would have. Words whose digits add up to a
    multiple of 3 come first: no two of them differ in one build alone.

    Parameters
    ----------
    wide : elements of the engine's other matrices
    """

    def __init__(self, code: Code, wide: int) -> None:
        self.code, self._wide = code, wide

    def capacity(self, cols: int) -> int:
        """Elements that can be told apart in matrices of so many columns."""
        if cols == 1:
            return len(self._signs)
        return min(prod(self._base(build, build % cols == phase) for build in self._builds) for phase in range(cols))

    def single(self, numbers: U32, build: int) -> Int8:
        """Integers of matrices of one column."""
        integers: Int8 = self._signs[numbers, build] * np.int8(self.code.top)
        return integers

    def integers(self, numbers: U32, phases: U32, cols: int, build: int) -> Int8:
        """Integers of matrices of more columns."""
        left, total = numbers.copy(), np.zeros_like(numbers)
        for at in range(build + 1):
            forced = phases == at % cols
            base = np.where(forced, self._base(at, forced=True), self._base(at, forced=False)).astype(np.uint32)
            left, digit = np.divmod(left, base)
            mixed = (digit + total * np.uint32(FACTORS[at]) + np.uint32(self.code.builds - at)) % base
            total += digit
        last = build == self.code.builds - 1
        inner = self.code.of_fields((mixed << np.uint32(last)).astype(np.uint8) + np.uint8(FIRST_INNER))
        top = np.int8(self.code.top)
        return np.where(forced, np.where((mixed == 1) | last, -top, top), inner).astype(np.int8)

    @property
    def _planes(self) -> range:
        return range(len(self.code.planes))

    @property
    def _builds(self) -> range:
        return range(self.code.builds)

    def _base(self, build: int, forced: bool) -> int:
        base = 2 if forced else INNER
        return base // 2 if build == self.code.builds - 1 else base

    @cached_property
    def _signs(self) -> Int8:
        """Words of one column, `[words, builds]`."""
        every = sorted(product((1, 0, -1), repeat=self.code.builds), key=lambda word: sum(word) % 3 != 0)
        phases = {
            frozenset(build for build in self._builds if build % cols == phase)
            for cols in range(2, NARROW)
            for phase in range(cols)
        }
        own = [word for word in every if len(set(word)) == 3 and frozenset(np.flatnonzero(word)) not in phases]
        signs = np.array(own, np.int8)
        fields = [[self.code.fields(row * np.int8(self.code.top), plane) for row in signs.T] for plane in self._planes]
        kept: Int8 = signs[~np.any([self.used(joined(of_plane)) for of_plane in fields], axis=0)]
        return kept

    def used(self, words: U32) -> npt.NDArray[np.bool_]:
        """Which words are those of a wide element's nibble."""
        used: npt.NDArray[np.bool_] = np.any(
            [self.code.locate(words, plane) < self._wide for plane in self._planes], axis=0
        )
        return used


def joined(fields: list[U8]) -> U32:
    """Words of the nibbles of all builds, that of build 0 lowest."""
    words = np.zeros(fields[0].shape, np.uint32)
    for build, field in enumerate(fields):
        words |= field.astype(np.uint32) << np.uint32(4 * build)
    return words
