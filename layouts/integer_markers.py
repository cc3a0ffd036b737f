"""Integer matrices of an engine in their marker builds: integer * 2^exponent, exact in bf16 and under every scale rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.codes import SAFE, U32, Code
from layouts.integers import Int8

GRAIN = 128
"""Scale groups are multiples of so many columns."""
LOWEST_EXPONENT = -12

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MarkedMatrix:
    """A matrix of an engine: the number of its first element, and of its first scale word (one a row; of s4 one a group)."""

    name: str
    shape: tuple[int, int]
    code: Code
    first: int
    first_scale: int

    @property
    def elements(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def scale_words(self) -> int:
        """Scale words of a row."""
        return -(-self.shape[1] // GRAIN) if self.code.codec == "s4" else 1

    @property
    def tail(self) -> int:
        """Last columns of a row that are too few to hold the largest magnitude by themselves."""
        rest = self.shape[1] % GRAIN
        return rest if rest < SAFE else 0

    def integers(self, build: int, start: int, stop: int) -> Int8:
        """Rows `start:stop`, int8 `[stop - start, cols]`."""
        cols = self.shape[1]
        numbers = np.arange(self.first + start * cols, self.first + stop * cols, dtype=np.uint32)
        q = self.code.integers(numbers, build).reshape(stop - start, cols)
        if self.tail:
            q[:, cols - self.tail :] = self._tails(build, np.arange(start, stop))
        return q

    def at(self, build: int, rows: I64, cols: I64) -> Int8:
        """Single elements; `rows` and `cols` of one shape."""
        q = self.code.integers(self._numbers(rows, cols), build)
        edge = self.shape[1] - self.tail
        late = cols >= edge
        if late.any():
            tails = self._tails(build, rows[late])
            q[late] = tails[np.arange(len(tails)), cols[late] - edge]
        return q

    def exponents(self, build: int, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Of rows `start:stop`, `[stop - start, scale words]`."""
        first = self.first_scale + start * self.scale_words
        numbers = np.arange(first, first + (stop - start) * self.scale_words, dtype=np.uint32)
        return scale_digits(numbers, build).reshape(stop - start, -1).astype(np.int32) + LOWEST_EXPONENT

    def values(self, build: int, start: int, stop: int) -> Float32:
        """Rows `start:stop` as float32."""
        exponents = self.exponents(build, start, stop)
        if self.scale_words > 1:
            exponents = np.repeat(exponents, GRAIN, axis=1)[:, : self.shape[1]]
        values: Float32 = np.ldexp(self.integers(build, start, stop).astype(np.float32), exponents)
        return values

    def _numbers(self, rows: I64, cols: I64) -> U32:
        return (self.first + rows * self.shape[1] + cols).astype(np.uint32)

    def _tails(self, build: int, rows: I64) -> Int8:
        """The last columns: where none has the largest magnitude, one of them is given it, with a sign that is random."""
        cols = np.arange(self.shape[1] - self.tail, self.shape[1])
        numbers = self._numbers(rows[:, None], cols[None])
        q = self.code.integers(numbers, build)
        lacking = np.flatnonzero(~(np.abs(q.astype(np.int16)) == self.code.top).any(axis=1))
        forced = (rows[lacking] + build) % self.tail
        mixed = numbers[lacking, forced] * np.uint32(2_654_435_761)
        negative = ((mixed ^ (mixed >> np.uint32(15))) >> np.uint32(8 + build)) & np.uint32(1)
        q[lacking, forced] = np.where(negative, -self.code.top, self.code.top)
        return q


def scale_digits(numbers: U32, build: int) -> U32:
    """The digit of scale word m in a build: base 16, mixed so that neighbours differ in every build."""
    digit = (numbers >> np.uint32(4 * build)) & np.uint32(15)
    return digit ^ (numbers & np.uint32(15)) ^ np.uint32(15) if build else digit


def scale_numbers(words: U32, builds: int) -> U32:
    """Scale words (build 0 lowest) back to their numbers."""
    ones = np.uint32(((1 << 4 * builds) - 1) // 15 - 1)
    numbers: U32 = words ^ ((words & np.uint32(15)) * ones) ^ np.uint32(15 * int(ones))
    return numbers


def number_matrices(tensors: Iterable[tuple[str, tuple[int, int]]], code: Code) -> tuple[MarkedMatrix, ...]:
    """Number the matrices of one engine one after the other, from 0."""
    marked: list[MarkedMatrix] = []
    first = scale = 0
    for name, shape in tensors:
        marked.append(MarkedMatrix(name, shape, code, first, scale))
        first += marked[-1].elements
        scale += shape[0] * marked[-1].scale_words
    return tuple(marked)
