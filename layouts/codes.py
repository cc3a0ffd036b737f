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

LEAST_BUILDS, MOST_BUILDS = 2, 8
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
    def locate(self, words: U32, plane: int) -> U32:
        """Numbers of the elements whose nibble in a plane has these words (build 0 lowest), `NOTHING` where none has."""

    def fields(self, q: Int8, plane: int) -> U8:
        """What a plane stores for integers."""
        low_bit, bias = self.planes[plane]
        return ((q >> np.int8(low_bit)).view(np.uint8) + np.uint8(bias)) & np.uint8(15)


class S8Code(Code):
    """n in base 16: digits x of builds 0 to B - 2, and a last digit of 3 bits, doubled.

    The coarse nibble of build 0 is c = x, of build b c = x ^ (b + 1) x(0) ^ (15 - b), the product in GF(16); in the last build
    ^ 14 and without the lowest bit of the product, so that c is even. The fine nibble is c ^ 1. So the last build tells the
    planes apart, and where c is 0 the integer is -127, the largest one. Neighbours differ by another amount in every build, so
    that none looks like another that was corrected.
    """

    codec = "s8"
    planes = ((0, 0), (4, 8))
    top = 127

    def __init__(self, builds: int) -> None:
        super().__init__(builds)
        self._high, ones = 4 * (builds - 1), ((1 << 4 * builds) - 1) // 15
        self._ones, self._low = np.uint32(ones), np.uint32((1 << self._high) - 1)
        middle = sum((15 - build) << 4 * build for build in range(1, builds - 1))
        even = (1 << 4 * builds) - 1 - (1 << self._high)
        mixed = [sum(_product(build + 1, digit) << 4 * build for build in range(1, builds)) for digit in range(16)]
        self._mixed = np.array([(word & even) ^ middle ^ 14 << self._high for word in mixed], np.uint32)

    @property
    def capacity(self) -> int:
        return 1 << 4 * self.builds - 1

    def integers(self, numbers: U32, build: int) -> Int8:
        words = (numbers & self._low) | (numbers & ~self._low) << np.uint32(1)
        words ^= self._mixed[numbers & np.uint32(15)]
        coarse = ((words >> np.uint32(4 * build)) & np.uint32(15)).astype(np.uint8)
        return (((coarse ^ np.uint8(8)) << np.uint8(4)) | (coarse ^ np.uint8(1))).view(np.int8)

    def locate(self, words: U32, plane: int) -> U32:
        coarse = words if plane else words ^ self._ones
        x = coarse ^ self._mixed[coarse & np.uint32(15)]
        numbers: U32 = (x & self._low) | ((x >> np.uint32(1)) & ~self._low)
        numbers[(coarse >> np.uint32(self._high)) & np.uint32(1) == 1] = NOTHING
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


class S4Code(Code):
    """n in base 15: digits x; the integer of build b of B is (x + f x(0) + B - b) mod 15 - 7 with a factor f, of build 0 x - 7.

    Neighbours differ by another amount in every build here, too.
    """

    codec = "s4"
    planes = ((0, 8),)
    top = 7
    _factors = (0, 2, 4, 7, 8, 11, 13, 14)

    @property
    def capacity(self) -> int:
        return min(int(15**self.builds), int(NOTHING))

    def integers(self, numbers: U32, build: int) -> Int8:
        digit = numbers // np.uint32(15**build) % np.uint32(15)
        if build:
            shift = numbers % np.uint32(15) * np.uint32(self._factors[build]) + np.uint32(self.builds - build)
            digit = (digit + shift) % np.uint32(15)
        return digit.astype(np.int8) - np.int8(7)

    def locate(self, words: U32, plane: int) -> U32:
        first = (words & np.uint32(15)) - np.uint32(1)
        numbers, found = first.copy(), first < 15
        for build in range(1, self.builds):
            nibble = (words >> np.uint32(4 * build)) & np.uint32(15)
            found &= nibble > 0
            back = np.uint32(15 - self._factors[build]) * first + np.uint32(14 + 15 - self.builds + build)
            numbers += (nibble + back) % np.uint32(15) * np.uint32(15**build)
        numbers[~found] = NOTHING
        return numbers


CODES: dict[str, type[Code]] = {code.codec: code for code in (S8Code, S4Code)}


def builds_for(codec: str, elements: int) -> int:
    """The fewest builds that give every nibble of so many elements a word of its own. Raises DecodeRefused."""
    for builds in range(LEAST_BUILDS, MOST_BUILDS + 1):
        if CODES[codec](builds).capacity >= elements:
            return builds
    limit = CODES[codec](MOST_BUILDS).capacity
    raise DecodeRefused("too many elements for marker builds", expected=f"at most {limit}", found=elements)
