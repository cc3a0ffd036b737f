"""Do elements of layouts share a bit? Exact, from the digits alone, without listing elements."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from layouts.digits import Digit, boxes
from layouts.errors import LayoutError

MAX_STEPS = 20_000

Cell = tuple[int, tuple[Digit, ...]]
"""The bit of its first element and whole digits."""


class Entangled(LayoutError):
    """A search for elements that overlap was cut off."""


def check_disjoint(shape: tuple[int, int], rows: tuple[Digit, ...], cols: tuple[Digit, ...], width: int) -> None:
    """Refuse a layout two of whose elements overlap.

    Nested strides (each at least the reach of all smaller ones) need one pass over the digits. Anything else is
    searched for a pair of elements less than `width` bits apart, in at most 20,000 steps.

    Raises
    ------
    LayoutError : two elements overlap, or the search is cut off.
    """
    digits = sorted((*rows, *cols), key=lambda d: abs(d.stride))
    if _nested(digits, width):
        return
    parts = cells(shape, rows, cols)
    for _, own in parts:
        strides = [abs(digit.stride) for digit in own if digit.size > 1]
        if len(set(strides)) < len(strides):  # of two whole digits of one stride, one takes back what the other steps
            raise LayoutError("two digits of one stride: elements overlap")
    search = Search(MAX_STEPS)
    for a, b in combinations_with_replacement(parts, 2):
        if search.meet(a, b, (width, width), a is not b):
            raise LayoutError("elements of the layout overlap", expected=f"{width} bits each")


def cells(shape: tuple[int, int], rows: tuple[Digit, ...], cols: tuple[Digit, ...], base: int = 0) -> list[Cell]:
    """A layout as boxes of whole digits."""
    return [
        (base + r.offset + c.offset, r.digits + c.digits)
        for r, c in product(boxes(rows, 0, shape[0]), boxes(cols, 0, shape[1]))
    ]


def _nested(digits: list[Digit], width: int) -> bool:
    reach = width
    for digit in digits:
        if abs(digit.stride) < reach:
            return False
        reach += (digit.size - 1) * abs(digit.stride)
    return True


class Search:
    """Looks for elements that overlap, the largest stride first, in at most so many steps over all its questions."""

    def __init__(self, most: int) -> None:
        self.left = most

    def meet(self, a: Cell, b: Cell, widths: tuple[int, int], distinct: bool = True) -> bool:
        """Whether an element of `a` and one of `b` share a bit; another one, unless the cells are `distinct`.

        Raises Entangled when the steps are used up.
        """
        ranges = sorted(_differences(a, b), reverse=True)
        low, high = _reaches(ranges)
        stack = [(0, a[0] - b[0], distinct)]
        while stack:
            level, total, apart = stack.pop()
            if level == len(ranges):
                if apart and -widths[0] < total < widths[1]:
                    return True
                continue
            stride, least, most = ranges[level]
            first = max(least, (-widths[0] - total - high[level + 1]) // stride + 1)
            last = min(most, -((total + low[level + 1] - widths[1]) // stride) - 1)
            self.left -= max(last - first + 1, 1)
            if self.left < 0:
                raise Entangled("strides too entangled to show that elements are disjoint")
            stack.extend((level + 1, total + k * stride, apart or k != 0) for k in range(first, last + 1))
        return False


def _reaches(ranges: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """What the strides from each level on can subtract and add at the most."""
    low, high = [0], [0]
    for stride, least, most in reversed(ranges):
        low.append(low[-1] + stride * least)
        high.append(high[-1] + stride * most)
    return low[::-1], high[::-1]


def _differences(a: Cell, b: Cell) -> list[tuple[int, int, int]]:
    """Per stride, the least and the most steps by which an element of `a` can be ahead of one of `b`."""
    found: dict[int, tuple[int, int]] = {}
    for sign, (_, digits) in ((1, a), (-1, b)):
        for digit in digits:
            steps = (digit.size - 1) * sign * (1 if digit.stride > 0 else -1)
            least, most = found.get(abs(digit.stride), (0, 0))
            found[abs(digit.stride)] = (least + min(steps, 0), most + max(steps, 0))
    return [(stride, least, most) for stride, (least, most) in found.items()]
