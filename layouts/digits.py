"""One axis of a tensor as mixed-radix digits: `offset(i) = sum(digit(i) * stride)`, fastest digit first.

The last digit may be partly used: an axis of 100 over digits (32, 4) ends after 4 of the last block's 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from layouts.errors import LayoutError

Int64 = npt.NDArray[np.int64]
MAX_BITS = 1 << 62
MAX_DIGITS = 8


@dataclass(frozen=True)
class Digit:
    """`size` steps of `stride` bits. A stride may be negative; 0 only where there is one step.

    Raises
    ------
    LayoutError : size below 1, a stride of 0 with several steps, or a number beyond 2**62.
    """

    size: int
    stride: int

    def __post_init__(self) -> None:
        if not 1 <= self.size < MAX_BITS or abs(self.stride) >= MAX_BITS:
            raise LayoutError("digit out of range", found=f"{self.size}:{self.stride}")
        if self.size > 1 and self.stride == 0:
            raise LayoutError("stride 0 puts several elements in one place", found=f"{self.size}:0")


@dataclass(frozen=True)
class Box:
    """`prod(sizes)` consecutive indices from `start`, all digits whole, beginning `offset` bits from index 0."""

    start: int
    offset: int
    digits: tuple[Digit, ...]

    @property
    def count(self) -> int:
        return prod(d.size for d in self.digits)


def canonical(n: int, digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """The one shortest spelling of an axis of `n` elements: no size-1 digit, none that continues its neighbour,
    the last trimmed to what the axis uses.

    Raises
    ------
    LayoutError : the digits count fewer than `n`, or more than 8 of them are left.
    """
    merged: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if merged and digit.stride == merged[-1].size * merged[-1].stride:
            merged[-1] = Digit(merged[-1].size * digit.size, merged[-1].stride)
        else:
            merged.append(digit)
    trimmed, left = [], n
    for digit in merged:
        size = min(digit.size, left)
        left = -(-left // size)
        if size > 1:
            trimmed.append(Digit(size, digit.stride))
    if left != 1:
        raise LayoutError("digits do not cover the axis", expected=n, found=prod(d.size for d in merged))
    if len(trimmed) > MAX_DIGITS:
        raise LayoutError("too many digits on one axis", expected=f"at most {MAX_DIGITS}", found=len(trimmed))
    return tuple(trimmed)


def boxes(digits: tuple[Digit, ...], start: int, stop: int) -> Iterator[Box]:
    """Indices `start:stop` in ascending order as boxes of whole digits, at most two more for each digit."""
    if stop <= start:
        return
    if not digits:
        yield Box(start, 0, ())
        return
    lower, last = digits[:-1], digits[-1]
    block = prod(d.size for d in lower)
    first, end = -(-start // block), stop // block
    if first > end:
        yield from _shifted(lower, start, stop, end, block, last.stride)
        return
    yield from _shifted(lower, start, first * block, first - 1, block, last.stride)
    if end > first:
        steps = (Digit(end - first, last.stride),) if end - first > 1 else ()
        yield Box(first * block, first * last.stride, lower + steps)
    yield from _shifted(lower, end * block, stop, end, block, last.stride)


def _shifted(lower: tuple[Digit, ...], start: int, stop: int, index: int, block: int, stride: int) -> Iterator[Box]:
    for box in boxes(lower, start - index * block, stop - index * block):
        yield Box(box.start + index * block, box.offset + index * stride, box.digits)


def span(digits: tuple[Digit, ...], n: int) -> tuple[int, int]:
    """Smallest and largest offset of indices `0:n`, in bits, exact for a partial last block."""
    lows, highs = [0], [0]
    for box in boxes(digits, 0, n):
        steps = [(d.size - 1) * d.stride for d in box.digits]
        lows.append(box.offset + sum(s for s in steps if s < 0))
        highs.append(box.offset + sum(s for s in steps if s > 0))
    return min(lows), max(highs)


def offsets(digits: tuple[Digit, ...], start: int, stop: int) -> Int64:
    """Offsets in bits of indices `start:stop`, int64 `[stop - start]`."""
    index = np.arange(start, stop, dtype=np.int64)
    total = np.zeros(len(index), np.int64)
    for digit in digits:
        index, step = np.divmod(index, digit.size)
        total += step * digit.stride
    return total
