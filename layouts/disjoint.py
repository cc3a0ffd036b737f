"""Do two elements of one layout share a bit? Exact, from the digits alone, without listing elements."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from layouts.digits import Digit, boxes
from layouts.errors import LayoutError

MAX_STEPS = 20_000

Cell = tuple[int, tuple[Digit, ...]]


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
    cells: list[Cell] = [
        (r.offset + c.offset, r.digits + c.digits)
        for r, c in product(boxes(rows, 0, shape[0]), boxes(cols, 0, shape[1]))
    ]
    for _, own in cells:
        strides = [abs(digit.stride) for digit in own if digit.size > 1]
        if len(set(strides)) < len(strides):  # of two whole digits of one stride, one takes back what the other steps
            raise LayoutError("two digits of one stride: elements overlap")
    steps = 0
    for a, b in combinations_with_replacement(cells, 2):
        met, steps = _meet(a, b, width, steps)
        if met:
            raise LayoutError("elements of the layout overlap", expected=f"{width} bits each")


def _nested(digits: list[Digit], width: int) -> bool:
    reach = width
    for digit in digits:
        if abs(digit.stride) < reach:
            return False
        reach += (digit.size - 1) * abs(digit.stride)
    return True


def _meet(a: Cell, b: Cell, width: int, steps: int) -> tuple[bool, int]:
    """Whether an element of `a` and another of `b` are less than `width` bits apart, and the steps taken so far."""
    ranges = sorted(_differences(a, b), reverse=True)
    low, high = [0], [0]
    for stride, least, most in reversed(ranges):
        low.append(low[-1] + stride * least)
        high.append(high[-1] + stride * most)
    low.reverse()
    high.reverse()
    stack = [(0, a[0] - b[0], a is not b)]
    while stack:
        level, total, distinct = stack.pop()
        if level == len(ranges):
            if distinct:
                return True, steps
            continue
        stride, least, most = ranges[level]
        first = max(least, (-width - total - high[level + 1]) // stride + 1)
        last = min(most, -((total + low[level + 1] - width) // stride) - 1)
        steps += max(last - first + 1, 1)
        if steps > MAX_STEPS:
            raise LayoutError("strides too entangled to show that elements are disjoint")
        stack.extend((level + 1, total + k * stride, distinct or k != 0) for k in range(first, last + 1))
    return False, steps


def _differences(a: Cell, b: Cell) -> list[tuple[int, int, int]]:
    """Per stride, the least and the most steps by which an element of `a` can be ahead of one of `b`."""
    found: dict[int, tuple[int, int]] = {}
    for sign, (_, digits) in ((1, a), (-1, b)):
        for digit in digits:
            steps = (digit.size - 1) * sign * (1 if digit.stride > 0 else -1)
            least, most = found.get(abs(digit.stride), (0, 0))
            found[abs(digit.stride)] = (least + min(steps, 0), most + max(steps, 0))
    return [(stride, least, most) for stride, (least, most) in found.items()]
