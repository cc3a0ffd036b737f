"""Marker builds for float engines: every element of an engine carries its own number, in two builds.

The values are bf16 (or fp16: `MarkedTensor.form`) and exact. An alphabet of m values gives m * (m - 1) pairs (a, b) with
a != b: element n holds a in build 0 and b in build 1. No element has the same value in both builds, so bytes that do not
depend on weights never match.

High bytes of the alphabet come from one set H, low bytes from its complement. A 16-bit read that straddles two stored
values therefore never lies in the alphabet, at either byte phase and next to any constant: every hit is an element.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from layouts.errors import DecodeRefused

BUILDS = 2
MIDDLE = 0x3F  # high byte of 0.5 .. 1.99
FP16_MIDDLE = 0x3C  # of 1 .. 1.25 in fp16, where high bytes 0x04 to 0x7B are normal numbers
LEAST, MOST = 25, 60  # exponent pairs on both sides together: 50 to 120 exponents

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64] | npt.NDArray[np.uint32]
Blob = npt.NDArray[np.uint8]

NOT_FOUND = np.int64(-1)
CHUNK = 1 << 19
ENCODED = 1 << 17


@dataclass(frozen=True)
class Alphabet:
    """16-bit floats with `pairs` neighbouring exponent pairs, both signs: around 1.0, or from high byte `lowest` on."""

    pairs: int
    lowest: int | None = None

    @cached_property
    def values(self) -> U16:
        """uint16 bit patterns, ascending by digit."""
        first = MIDDLE - self.pairs // 2 if self.lowest is None else self.lowest
        high = np.arange(first, first + self.pairs)
        high = np.concatenate([high, high | 0x80])
        low = np.setdiff1d(np.arange(256), high)
        return (high[:, None] * 256 + low[None, :]).ravel().astype(np.uint16)

    @cached_property
    def digits(self) -> npt.NDArray[np.int32]:
        """Digit of each 16-bit pattern, -1 outside the alphabet."""
        table = np.full(1 << 16, -1, np.int32)
        table[self.values] = np.arange(len(self.values))
        return table

    @property
    def capacity(self) -> int:
        """How many elements can be told apart in two builds."""
        return len(self.values) * (len(self.values) - 1)

    def encode(self, numbers: Numbers, build: int) -> U16:
        """Bits of the elements with these numbers, in build 0 or 1."""
        first, second = np.divmod(numbers, numbers.dtype.type(len(self.values) - 1))
        if build == 0:
            return self.values[first]
        second += second >= first
        return self.values[second]

    def decode(self, first: U16, second: U16) -> I64:
        """Numbers of the elements that read `first` and `second` in the two builds, -1 where there is none."""
        a, b = self.digits[first].astype(np.int64), self.digits[second].astype(np.int64)
        number = a * (len(self.values) - 1) + b - (b > a)
        return np.where((a < 0) | (b < 0) | (a == b), NOT_FOUND, number)


PLUS_ONE_SAFE = 0x38
"""From 2^-15 on no value changes when 1 is taken from it and added again in float32, as gains that are stored minus one are."""

VECTOR_ALPHABET = Alphabet(14, PLUS_ONE_SAFE)
"""40 million elements, enough for the vectors of an integer engine."""


def choose_alphabet(elements: int, lowest: int | None = None, middle: int = MIDDLE) -> Alphabet:
    """The smallest alphabet, of 50 exponents or more, that numbers so many elements; around `middle`, or from `lowest` on.

    Raises DecodeRefused when two builds cannot.
    """
    for pairs in range(LEAST, MOST + 1):
        alphabet = Alphabet(pairs, middle - pairs // 2 if lowest is None else lowest)
        if alphabet.capacity >= elements:
            return alphabet
    limit = Alphabet(MOST).capacity
    raise DecodeRefused("too many elements for two builds", expected=f"at most {limit}", found=elements)


@dataclass(frozen=True)
class MarkedTensor:
    """A tensor of an engine and the number of its first element; the rest follow in row-major order.

    `form` is the codec in which the compiler sees the markers: where it stores fp16 it has to be fp16, else bf16.
    """

    name: str
    shape: tuple[int, ...]
    first: int
    form: str = "bf16"

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns; a vector is one row."""
        return (1, self.shape[0]) if len(self.shape) == 1 else (self.shape[0], self.shape[1])

    @property
    def elements(self) -> int:
        rows, cols = self.grid
        return rows * cols

    def values(self, alphabet: Alphabet, build: int, start: int, stop: int) -> U16:
        """Bits of rows `start:stop` (all of a vector) in a build."""
        rows, cols = self.grid
        first, last = (start, min(stop, rows)) if len(self.shape) == 2 else (0, 1)
        values = np.empty((last - first) * cols, np.uint16)
        for at in range(0, len(values), ENCODED):
            number = self.first + first * cols + at
            chunk = values[at : at + ENCODED]
            chunk[:] = alphabet.encode(np.arange(number, number + len(chunk), dtype=np.uint32), build)
        return values.reshape((last - first, cols) if len(self.shape) == 2 else (cols,))


def number_tensors(tensors: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[MarkedTensor, ...]:
    """Number the tensors of one engine one after the other, from 0."""
    marked, first = [], 0
    for name, shape in tensors:
        marked.append(MarkedTensor(name, shape, first))
        first += marked[-1].elements
    return tuple(marked)


@dataclass(frozen=True)
class Sightings:
    """Bit addresses at which each numbered element is stored: the lowest and the highest (one array while no element is
    stored twice), and how many hits in all."""

    lowest: I64
    highest: I64
    hits: int


def find_markers(builds: tuple[Blob, Blob], alphabet: Alphabet, first: int, stop: int) -> Sightings:
    """Search both byte phases of the blobs for the elements `first:stop`.

    Raises DecodeRefused when the blobs differ in size or hold a number that no element has.
    """
    if builds[0].size != builds[1].size:
        raise DecodeRefused("the two marker builds differ in size", expected=builds[0].size, found=builds[1].size)
    lowest = np.full(stop - first, NOT_FOUND, np.int64)
    highest, hits = lowest, 0
    for start in range(0, builds[0].size, CHUNK):
        at, number = _hits(builds, alphabet, start, first, stop)
        at *= 8
        new = lowest[number] == NOT_FOUND
        lowest[number[new][::-1]] = at[new][::-1]
        if highest is lowest and not np.array_equal(lowest[number], at):
            highest = lowest.copy()
        if highest is not lowest:
            highest[number] = at
        hits += len(at)
    return Sightings(lowest, highest, hits)


def _hits(builds: tuple[Blob, Blob], alphabet: Alphabet, start: int, first: int, stop: int) -> tuple[I64, I64]:
    """Hits that begin in the chunk at `start`: byte offsets ascending, and numbers counted from `first`."""
    span = slice(start, min(start + CHUNK + 1, builds[0].size))
    words = [_words(build[span]) for build in builds]
    at = np.flatnonzero(words[0] != words[1])
    number = alphabet.decode(words[0][at], words[1][at])
    known = number >= 0
    at, number = at[known] + start, number[known]
    if number.size and (number.max() >= stop or number.min() < first):
        bad = int(np.flatnonzero((number >= stop) | (number < first))[0])
        raise DecodeRefused(
            "a marker that no element of this engine carries",
            offset=int(at[bad]),
            expected=f"numbers {first} to {stop - 1}",
            found=int(number[bad]),
        )
    return at, number - first


def _words(data: Blob) -> U16:
    """The little-endian 16-bit word at every byte."""
    low, high = data[:-1].astype(np.uint16), data[1:].astype(np.uint16)
    return low | (high << np.uint16(8))
