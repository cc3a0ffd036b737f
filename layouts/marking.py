"""Which bits of a part of a blob do layouts own? Marked part by part, for no mask is to be as large as a blob."""

from __future__ import annotations

from itertools import product

import numpy as np

from layouts.algebra import Layout
from layouts.digits import boxes
from layouts.errors import LayoutError
from layouts.nibbles import BOTH, WIDTH, byte_boxes
from layouts.stored import StoredTensor
from layouts.strided import Bytes

Steps = tuple[tuple[int, int], ...]
"""(stride, size) in bytes, strides positive, the widest first."""


def mark_tensor(mask: Bytes, stored: StoredTensor, start: int = 0) -> None:
    """Set in every byte of a mask the bits that any copy of the tensor owns: all 8, or 4 of them.

    Parameters
    ----------
    mask : stands for the bytes from `start` of the blob, as many as it has; what the tensor owns elsewhere is left out
    start : may be negative, for a mask that begins before the blob

    Raises
    ------
    LayoutError : elements that are neither whole bytes nor halves of bytes
    """
    for layout in stored.layouts():
        _mark_layout(mask, layout, start)


def _mark_layout(mask: Bytes, layout: Layout, start: int) -> None:
    unit = WIDTH if layout.width == WIDTH else 8
    steps = [digit.stride for digit in (*layout.rows, *layout.cols)]
    if any(bits % unit for bits in (layout.base, layout.width, *steps)):
        raise LayoutError(f"layout is not aligned to {unit} bits", found=layout)
    low, high = layout.extent
    if high <= start * 8 or low >= (start + len(mask)) * 8:
        return
    for row, col in product(boxes(layout.rows, 0, layout.shape[0]), boxes(layout.cols, 0, layout.shape[1])):
        base, digits = layout.base + row.offset + col.offset, (*row.digits, *col.digits)
        if layout.width == WIDTH:
            for box in byte_boxes(base, digits):
                _mark_box(mask, box.offset - start, [(stride, size) for size, stride in box.steps], box.bits)
        else:
            strides = [(digit.stride // 8, digit.size) for digit in digits] + [(1, layout.width // 8)]
            _mark_box(mask, base // 8 - start, strides, BOTH)


def _mark_box(mask: Bytes, base: int, strides: list[tuple[int, int]], bits: int) -> None:
    base += sum(min(0, stride) * (size - 1) for stride, size in strides)
    steps = tuple(sorted(((abs(stride), size) for stride, size in strides if size > 1), reverse=True))
    _mark(mask, base, steps, np.uint8(bits))


def _mark(mask: Bytes, base: int, steps: Steps, bits: np.uint8) -> None:
    """Mark a box from byte `base` of the mask: at once if it lies inside, else step by step of its widest digit."""
    reach = 1 + sum(stride * (size - 1) for stride, size in steps)
    if base >= len(mask) or base + reach <= 0:
        return
    if base >= 0 and base + reach <= len(mask):
        shape, strides = tuple(size for _, size in steps), tuple(stride for stride, _ in steps)
        view: Bytes = np.ndarray(shape, np.uint8, buffer=mask, offset=base, strides=strides)
        view |= bits
        return
    (stride, size), inner = steps[0], steps[1:]
    step = reach - stride * (size - 1)
    touched = _clip((-base - step) // stride + 1, size), _clip(-(-(len(mask) - base) // stride), size)
    first = min(max(_clip(-(base // stride), size), touched[0]), touched[1])
    stop = max(_clip((len(mask) - base - step) // stride + 1, size), first)
    if stop > first:
        _mark(mask, base + first * stride, ((stride, stop - first), *inner), bits)
    for index in (*range(touched[0], first), *range(stop, touched[1])):
        _mark(mask, base + index * stride, inner, bits)


def _clip(index: int, size: int) -> int:
    return min(max(index, 0), size)
