"""Elements of 4 bits as boxes of whole bytes: bytes that hold one element, in either half, or a pair of them.

The low half of a byte comes first: address 8 b is the low half of byte b, address 8 b + 4 the high half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from layouts.digits import Digit

WIDTH = 4
LOW, HIGH, BOTH = 0x0F, 0xF0, 0xFF

Picks = tuple[slice, ...]


@dataclass(frozen=True)
class ByteBox:
    """Elements of a box that lie in the same halves of bytes.

    bits : `LOW`, `HIGH` or `BOTH`: what the elements own of each byte
    offset : the first byte
    steps : (size, stride in bytes) of each axis
    low, high : which elements of the box are in the low and in the high halves, one slice an axis; as many of one as of
        the other where both are owned, else only the owned one has a meaning
    """

    bits: int
    offset: int
    steps: tuple[tuple[int, int], ...]
    low: Picks
    high: Picks


def byte_boxes(base: int, digits: Sequence[Digit]) -> Iterator[ByteBox]:
    """The box of 4-bit elements that begins at bit `base`, each of its elements in exactly one of the boxes returned.

    An axis whose elements are 4 bits apart is cut into pairs and what is left at its ends; every other axis that does not
    step by whole bytes is cut into its even and its odd elements.

    Parameters
    ----------
    base : bit address, a multiple of 4
    digits : one an axis, strides multiples of 4
    """
    paired = next((axis for axis, digit in enumerate(digits) if digit.stride == WIDTH), None)
    for choice in product(*map(_whole_steps, digits)):
        first = base + sum(offset for offset, _, _ in choice)
        steps = tuple((digit.size, digit.stride // 8) for _, digit, _ in choice)
        picks = tuple(pick for _, _, pick in choice)
        if paired is None:
            yield ByteBox(HIGH if first % 8 else LOW, first // 8, steps, picks, picks)
        else:
            yield from _pairs(first, steps, picks, paired)


def _whole_steps(digit: Digit) -> list[tuple[int, Digit, slice]]:
    """Offset in bits, digit and elements of the parts of an axis that step by whole bytes, or by pairs."""
    if digit.stride % 8 == 0 or digit.stride == WIDTH:
        return [(0, digit, slice(None))]
    even, odd = Digit(-(-digit.size // 2), 2 * digit.stride), Digit(digit.size // 2, 2 * digit.stride)
    return [(0, even, slice(0, None, 2)), (digit.stride, odd, slice(1, None, 2))]


def _pairs(base: int, steps: tuple[tuple[int, int], ...], picks: Picks, axis: int) -> Iterator[ByteBox]:
    size = steps[axis][0]

    def box(bits: int, start: int, count: int, low: slice, high: slice) -> ByteBox:
        sized = (*steps[:axis], (count, 1), *steps[axis + 1 :])
        lows, highs = ((*picks[:axis], pick, *picks[axis + 1 :]) for pick in (low, high))
        return ByteBox(bits, (base + WIDTH * start) // 8, sized, lows, highs)

    head = 1 if base % 8 else 0
    end = head + (size - head) // 2 * 2
    if head:
        yield box(HIGH, 0, 1, slice(0, 1), slice(0, 1))
    if end > head:
        yield box(BOTH, head, (end - head) // 2, slice(head, end, 2), slice(head + 1, end, 2))
    if end < size:
        yield box(LOW, end, 1, slice(end, None), slice(end, None))
