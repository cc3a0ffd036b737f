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

    The coarse nibble of build 0 is c = x, of build b c = x ^ x(0) ^ (15 - b), of the last one x ^ x(0) ^ 14 without the lowest
    bit of x(0), so that it is even. The fine nibble is c ^ 1. So the last build tells the planes apart, and where c is 0 the
    integer is -127, the largest one. Words of one repeated digit, which constant bytes look like, belong to the last numbers.
    """

    codec = "s8"
    planes = ((0, 0), (4, 8))
    top = 127

    def __init__(self, builds: int) -> None:
        super().__init__(builds)
        self._high = 4 * (builds - 1)
        ones = (1 << 4 * builds) // 15
        self._ones, self._even = np.uint32(ones), np.uint32((1 << 4 * builds) - 1 - (1 << self._high))
        self._spread = np.uint32(ones - 1)
        middle = sum((15 - build) << 4 * build for build in range(1, builds - 1))
        self._twist = np.uint32(middle | 14 << self._high)

    @property
    def capacity(self) -> int:
        return 1 << 4 * self.builds - 1

    def integers(self, numbers: U32, build: int) -> Int8:
        coarse = ((self._words(numbers) >> np.uint32(4 * build)) & np.uint32(15)).astype(np.uint8)
        return (((coarse ^ np.uint8(8)) << np.uint8(4)) | (coarse ^ np.uint8(1))).view(np.int8)

    def locate(self, words: U32, plane: int) -> U32:
        coarse = words if plane else words ^ self._ones
        x = coarse ^ self._twist ^ ((coarse & np.uint32(15)) * self._spread & self._even)
        low = np.uint32((1 << self._high) - 1)
        numbers: U32 = (x & low) | ((x >> np.uint32(self._high + 1)) << np.uint32(self._high))
        numbers[(coarse >> np.uint32(self._high)) & np.uint32(1) == 1] = NOTHING
        return numbers

    def _words(self, numbers: U32) -> U32:
        low = np.uint32((1 << self._high) - 1)
        x = (numbers & low) | ((numbers >> np.uint32(self._high)) << np.uint32(self._high + 1))
        words: U32 = x ^ self._twist ^ ((numbers & np.uint32(15)) * self._spread & self._even)
        return words


class S4Code(Code):
    """n in base 15: digits x; the integer of build 0 is x - 7, of build b of B (x + x(0) + B - b) mod 15 - 7.

    Words of one repeated digit belong to the last numbers.
    """

    codec = "s4"
    planes = ((0, 8),)
    top = 7

    @property
    def capacity(self) -> int:
        return min(int(15**self.builds), int(NOTHING))

    def integers(self, numbers: U32, build: int) -> Int8:
        digit = numbers // np.uint32(15**build) % np.uint32(15)
        if build:
            digit = (digit + numbers % np.uint32(15) + np.uint32(self.builds - build)) % np.uint32(15)
        return digit.astype(np.int8) - np.int8(7)

    def locate(self, words: U32, plane: int) -> U32:
        first = words & np.uint32(15)
        numbers, found = first - np.uint32(1), first > 0
        for build in range(1, self.builds):
            nibble = (words >> np.uint32(4 * build)) & np.uint32(15)
            found &= nibble > 0
            digit = (nibble + np.uint32(30 - self.builds + build) - first) % np.uint32(15)
            numbers += digit * np.uint32(15**build)
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
