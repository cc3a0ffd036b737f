"""Hypothesis strategies for layouts that a compiler could have made, and for some that none would."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from layouts.algebra import Digit, Layout


@st.composite
def layouts(draw: st.DrawFn, width: int | None = None, grain: int = 1) -> Layout:
    """Nested digits in any order over both axes, gaps between them, negative strides, partial last blocks, any base.

    grain : every address is a multiple of so many bits
    """
    width = draw(st.sampled_from([8, 16, 32])) if width is None else width
    sizes = [draw(st.lists(st.integers(2, 5), max_size=3)) for _ in range(2)]
    order = draw(st.permutations([(axis, i) for axis in (0, 1) for i in range(len(sizes[axis]))]))
    digits: dict[tuple[int, int], Digit] = {}
    reach, low = width, 0
    for axis, i in order:
        stride = reach + grain * draw(st.integers(0, 9))
        if draw(st.integers(0, 7)) == 0:
            low += (sizes[axis][i] - 1) * stride
            digits[axis, i] = Digit(sizes[axis][i], -stride)
        else:
            digits[axis, i] = Digit(sizes[axis][i], stride)
        reach += (sizes[axis][i] - 1) * stride
    axes = [tuple(digits[axis, i] for i in range(len(sizes[axis]))) for axis in (0, 1)]
    shape = tuple(draw(st.integers(prod(s[:-1]) + 1 if s else 1, prod(s))) for s in sizes)
    base = low + grain * draw(st.integers(0, 50))
    return Layout((shape[0], shape[1]), base, axes[0], axes[1], width)
