"""Integer matrices of an engine in their marker builds: integer * 2^exponent, exact in bf16 and under every scale rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32
from layouts.codes import SAFE, U32, Code
from layouts.errors import DecodeRefused
from layouts.integers import Int8
from layouts.narrow_codes import NARROW, NarrowCode

GRAIN = 128
"""Scale groups are multiples of so many columns."""
EXPONENTS = np.array([*range(-12, 0), *range(1, 5), 0], np.int32)
"""Of each scale digit. The last one is that of a row of zeros: its scale is 1, which no other digit's is."""
ZERO = np.uint32(len(EXPONENTS) - 1)
DIGIT_BITS = 5

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MarkedMatrix:
    """A matrix of an engine: the number of its first element, and of its first scale word (one a row; of s4 one a group).

    `narrow` is the code of matrices of few columns, which are numbered by themselves; those of one column again.
    """

    name: str
    shape: tuple[int, int]
    code: Code
    first: int
    first_scale: int
    narrow: NarrowCode | None = None

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
        if self.narrow:
            return self._narrow(self.narrow, build, *np.mgrid[start:stop, :cols])
        numbers = np.arange(self.first + start * cols, self.first + stop * cols, dtype=np.uint32)
        q = self.code.integers(numbers, build).reshape(stop - start, cols)
        if self.tail:
            q[:, cols - self.tail :] = self._tails(build, np.arange(start, stop))
        return q

    def at(self, build: int, rows: I64, cols: I64) -> Int8:
        """Single elements; `rows` and `cols` of one shape."""
        if self.narrow:
            return self._narrow(self.narrow, build, rows, cols)
        q = self.code.integers(self._numbers(rows, cols), build)
        edge = self.shape[1] - self.tail
        late = cols >= edge
        if late.any():
            tails = self._tails(build, rows[late])
            q[late] = tails[np.arange(len(tails)), cols[late] - edge]
        return q

    def _narrow(self, narrow: NarrowCode, build: int, rows: I64, cols: I64) -> Int8:
        width, numbers = self.shape[1], self._numbers(rows, cols)
        if width == 1:
            return narrow.single(numbers, build)
        return narrow.integers(numbers, ((cols - rows) % width).astype(np.uint32), width, build)

    def scale_digits(self, build: int, start: int, stop: int) -> U32:
        """Of rows `start:stop`, `[stop - start, scale words]`.

        In rows of one column a digit is `ZERO` or tells the sign; it is below 8, for exponents whose entries have no nibble in
        common with the integers.
        """
        first = self.first_scale + start * self.scale_words
        numbers = np.arange(first, first + (stop - start) * self.scale_words, dtype=np.uint32)
        digits = scale_digits(numbers, build).reshape(stop - start, -1)
        if self.shape[1] > 1:
            return digits
        q = self.integers(build, start, stop)
        return np.where(q == 0, ZERO, (digits & np.uint32(6)) | (q < 0)).astype(np.uint32)

    def values(self, build: int, start: int, stop: int) -> Float32:
        """Rows `start:stop` as float32."""
        exponents = EXPONENTS[self.scale_digits(build, start, stop)]
        if self.scale_words > 1:
            exponents = np.repeat(exponents, GRAIN, axis=1)[:, : self.shape[1]]
        values: Float32 = np.ldexp(self.integers(build, start, stop).astype(np.float32), exponents)
        return values

    def _numbers(self, rows: I64, cols: I64) -> U32:
        return (self.first + rows * self.shape[1] + cols).astype(np.uint32)

    def _tails(self, build: int, rows: I64) -> Int8:
        """The last columns; where none has the largest magnitude, one has it by force. Signs of builds 0 and 1 differ."""
        cols = np.arange(self.shape[1] - self.tail, self.shape[1])
        numbers = self._numbers(rows[:, None], cols[None])
        q = self.code.integers(numbers, build)
        lacking = np.flatnonzero(~(np.abs(q.astype(np.int16)) == self.code.top).any(axis=1))
        forced = (rows[lacking] + build) % self.tail
        mixed = numbers[lacking, forced] * np.uint32(2_654_435_761)
        shift = np.uint32(8 + (build if build != 1 else 0))
        negative = ((mixed ^ (mixed >> np.uint32(15))) >> shift & np.uint32(1)) ^ np.uint32(build == 1)
        q[lacking, forced] = np.where(negative, -self.code.top, self.code.top)
        return q


def scale_digits(numbers: U32, build: int) -> U32:
    """The digit of scale word m in a build: base 16, mixed so that neighbours differ in every build."""
    digit = (numbers >> np.uint32(4 * build)) & np.uint32(15)
    return digit ^ (numbers & np.uint32(15)) ^ np.uint32(15) if build else digit


def scale_table(matrices: Iterable[MarkedMatrix], builds: int) -> npt.NDArray[np.uint64]:
    """The word of each scale number: its digits, that of build 0 lowest."""
    tables = []
    for matrix in matrices:
        words = np.zeros(matrix.shape[0] * matrix.scale_words, np.uint64)
        for build in range(builds):
            digits = matrix.scale_digits(build, 0, matrix.shape[0]).ravel()
            words |= digits.astype(np.uint64) << np.uint64(DIGIT_BITS * build)
        tables.append(words)
    return np.concatenate(tables)


def number_matrices(tensors: Iterable[tuple[str, tuple[int, int]]], code: Code) -> tuple[MarkedMatrix, ...]:
    """Number the matrices of one engine one after the other, from 0; narrow ones and those of one column by themselves.

    Raises DecodeRefused for more narrow elements than there are words.
    """
    tensors = list(tensors)
    narrow = NarrowCode(code, sum(rows * cols for _, (rows, cols) in tensors if cols >= NARROW))
    marked: list[MarkedMatrix] = []
    first, scale = {"wide": 0, "narrow": 0, "single": 0}, 0
    for name, shape in tensors:
        kind = "single" if shape[1] == 1 else "narrow" if shape[1] < NARROW else "wide"
        marked.append(MarkedMatrix(name, shape, code, first[kind], scale, None if kind == "wide" else narrow))
        first[kind] += marked[-1].elements
        scale += shape[0] * marked[-1].scale_words
        if kind != "wide" and first[kind] > narrow.capacity(shape[1]):
            limit = f"at most {narrow.capacity(shape[1])} of {shape[1]} columns"
            raise DecodeRefused("too many elements of narrow matrices", where=name, expected=limit, found=first[kind])
    return tuple(marked)
