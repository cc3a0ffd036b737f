"""Words of nibbles: what a marker build stores at element n, so that its nibbles over all builds say n (docs/markers.md).

Over B builds every stored nibble has a word of B digits. A code gives each of them a word of its own, and in every build the
largest magnitude to some element of every aligned run of 16 (s4: 15), so that any scale group of `SAFE` columns has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from layouts.errors import DecodeRefused
from layouts.integers import Int8

LEAST_BUILDS, MOST_BUILDS = 4, 8
"""Fewer would do for engines of some thousand elements, where a last group of one column shows too little."""

SAFE = 31
"""So many consecutive columns hold a whole aligned run of elements, and with it the largest magnitude."""

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]
NOTHING = np.uint32(0xFFFFFFFF)


class Code(ABC):
    """Integers of elements in the builds of one engine. `planes` is (low bit, bias) of each stored nibble."""

    codec: ClassVar[str]
    planes: ClassVar[tuple[tuple[int, int], ...]]
    top: ClassVar[int]
    """The largest magnitude of a marker."""

    def __init__(self, builds: int) -> None:
        self.builds = builds

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many elements have words of their own."""

    @abstractmethod
    def integers(self, numbers: U32, build: int) -> Int8:
        """The integers of the elements with these numbers."""

    @abstractmethod
    def of_fields(self, fields: U8) -> Int8:
        """Integers of markers with these nibbles in the last plane."""

    @abstractmethod
    def locate(self, words: U32, plane: int) -> U32:
        """Numbers of the elements whose nibble in a plane has these words (build 0 lowest), `NOTHING` where none has."""

    def fields(self, q: Int8, plane: int) -> U8:
        """What a plane stores for integers."""
        low_bit, bias = self.planes[plane]
        return ((q >> np.int8(low_bit)).view(np.uint8) + np.uint8(bias)) & np.uint8(15)


class S8Code(Code):
    """n in base 16: digits x of builds 0 to B - 2, and a last digit of 3 bits, doubled.

    With s the sum (bit by bit) of the digits before x, the coarse nibble of build 0 is c = x, of build b it is
    c = x ^ (b + 1) s ^ (15 - b), the product in GF(16); in the last build c = x ^ (b + 1) s ^ 14 without the lowest bit of the
    product, so that c is even. The fine nibble is c ^ 1. So the last build tells the planes apart, and where c is 0 the integer
    is -127, the largest one. Elements near each other differ in most builds: none looks like another that was corrected.

    The words are linear in the bits of n: two tables of 2^16 make them, two others take them back.
    """

    codec = "s8"
    planes = ((0, 0), (4, 8))
    top = 127

    def __init__(self, builds: int) -> None:
        super().__init__(builds)
        self._bits = 4 * builds - 1
        self._plane_bit, ones = np.uint32(4 * (builds - 1)), ((1 << 4 * builds) - 1) // 15
        self._ones, self._constant = np.uint32(ones), np.uint32(self._word(0))
        columns = [self._word(1 << bit) ^ int(self._constant) for bit in range(self._bits)]
        self._encode, self._decode = _tables(columns), _tables(_inverse(columns, 4 * builds))

    def _word(self, number: int) -> int:
        word = total = 0
        for build in range(self.builds):
            digit, last = number >> 4 * build & 15, build == self.builds - 1
            digit = digit << 1 if last else digit
            mixed = _product(build + 1, total)
            twist = (mixed & 14) ^ 14 if last else mixed ^ (15 - build)
            word |= (digit ^ twist if build else digit) << 4 * build
            total ^= digit
        return word

    @property
    def capacity(self) -> int:
        return 1 << self._bits

    def integers(self, numbers: U32, build: int) -> Int8:
        words = _apply(self._encode, numbers) ^ self._constant
        return self.of_fields(((words >> np.uint32(4 * build)) & np.uint32(15)).astype(np.uint8))

    def of_fields(self, fields: U8) -> Int8:
        return (((fields ^ np.uint8(8)) << np.uint8(4)) | (fields ^ np.uint8(1))).view(np.int8)

    def locate(self, words: U32, plane: int) -> U32:
        coarse = words if plane else words ^ self._ones
        numbers = _apply(self._decode, coarse ^ self._constant)
        numbers[(coarse >> self._plane_bit) & np.uint32(1) == 1] = NOTHING
        return numbers


def _product(a: int, b: int) -> int:
    """In GF(16), modulo x^4 + x + 1."""
    product = 0
    for bit in range(4):
        if b >> bit & 1:
            product ^= a << bit
    for bit in (6, 5, 4):
        if product >> bit & 1:
            product ^= 0b10011 << bit - 4
    return product


def _inverse(columns: list[int], bits: int) -> list[int]:
    """What each bit of a word says of a number, for words that are sums of these columns; Gauss-Jordan over GF(2)."""
    rows = [(column, 1 << index) for index, column in enumerate(columns)]
    found = [0] * bits
    for index in range(len(rows)):
        pivot = rows[index][0].bit_length() - 1
        for other, (word, number) in enumerate(rows):
            if other != index and word >> pivot & 1:
                rows[other] = (word ^ rows[index][0], number ^ rows[index][1])
    for word, number in rows:
        found[word.bit_length() - 1] = number
    return found


def _tables(columns: list[int]) -> tuple[U32, U32]:
    """Sums of columns for each value of the low and of the high 16 bits."""
    tables = []
    for first in (0, 16):
        table = np.zeros(1, np.uint32)
        for column in (*columns[first : first + 16], *[0] * 16)[:16]:
            table = np.concatenate([table, table ^ np.uint32(column)])
        tables.append(table)
    return tables[0], tables[1]


def _apply(tables: tuple[U32, U32], bits: U32) -> U32:
    result: U32 = tables[0][bits & np.uint32(0xFFFF)] ^ tables[1][bits >> np.uint32(16)]
    return result


class S4Code(Code):
    """n in base 15: digits x. The integer of build 0 is x - 7, of build b of B it is (x + f s + B - b) mod 15 - 7.

    f is a factor of the build, s the sum of the digits before. Elements near each other differ in most builds here, too.
    """

    codec = "s4"
    planes = ((0, 8),)
    top = 7
    _factors = (0, 2, 4, 7, 8, 11, 13, 14)

    @property
    def capacity(self) -> int:
        return min(int(15**self.builds), int(NOTHING))

    def integers(self, numbers: U32, build: int) -> Int8:
        total, left = np.zeros_like(numbers), numbers
        for _ in range(build):
            left, digit = np.divmod(left, np.uint32(15))
            total += digit
        digit = left % np.uint32(15)
        if build:
            digit = (digit + total * np.uint32(self._factors[build]) + np.uint32(self.builds - build)) % np.uint32(15)
        return digit.astype(np.int8) - np.int8(7)

    def of_fields(self, fields: U8) -> Int8:
        return fields.astype(np.int8) - np.int8(8)

    def locate(self, words: U32, plane: int) -> U32:
        numbers = (words & np.uint32(15)) - np.uint32(1)
        found, total = numbers < 15, numbers.copy()
        for build in range(1, self.builds):
            nibble = (words >> np.uint32(4 * build)) & np.uint32(15)
            found &= nibble > 0
            back = np.uint32(15 - self._factors[build]) * total + np.uint32(14 + 15 - self.builds + build)
            digit = (nibble + back) % np.uint32(15)
            numbers += digit * np.uint32(15**build)
            total += digit
        numbers[~found] = NOTHING
        return numbers


CODES: dict[str, type[Code]] = {code.codec: code for code in (S8Code, S4Code)}


def builds_for(codec: str, elements: int) -> int:
    """The fewest builds, of 4 or more, that give every nibble of so many elements a word of its own. Raises DecodeRefused."""
    for builds in range(LEAST_BUILDS, MOST_BUILDS + 1):
        if CODES[codec](builds).capacity >= elements:
            return builds
    limit = CODES[codec](MOST_BUILDS).capacity
    raise DecodeRefused("too many elements for marker builds", expected=f"at most {limit}", found=elements)
