"""The one place where a layout meets memory: each box of whole digits becomes one strided NumPy view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.algebra import Layout
from layouts.digits import Box, boxes
from layouts.errors import LayoutError
from layouts.nibbles import WIDTH, ByteBox, byte_boxes

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


def box_views(buffer: Bytes, layout: Layout, start: int, stop: int, unit: int = 8) -> Iterator[tuple[Box, Box, Array]]:
    """Rows `start:stop` of a layout as strided views of a buffer.

    Parameters
    ----------
    buffer : contiguous uint8, one byte for each `unit` bits of address space

    Yields
    ------
    row box, column box, view : uint8 `[*row sizes, *column sizes, width // unit]`, slowest digit first

    Raises
    ------
    LayoutError : addresses, strides or width that are no multiple of `unit`, or an element outside the buffer.
    """
    _check_fits(layout, len(buffer), unit)
    cells = layout.width // unit
    row_boxes = list(boxes(layout.rows, start, stop))
    for row, col in product(row_boxes, boxes(layout.cols, 0, layout.shape[1])):
        digits = (*reversed(row.digits), *reversed(col.digits))
        yield (
            row,
            col,
            np.ndarray(
                (*(d.size for d in digits), cells),
                np.uint8,
                buffer=buffer,
                offset=(layout.base + row.offset + col.offset) // unit,
                strides=(*(d.stride // unit for d in digits), 1),
            ),
        )


def element_views(buffer: Bytes, layout: Layout, start: int, stop: int) -> Iterator[tuple[Box, Box, Array]]:
    """As `box_views`, but of whole elements: `[*row sizes, *column sizes]` little-endian integers of the layout's
    width, aligned to nothing but a byte.

    Raises
    ------
    LayoutError : also a width that is not 8, 16, 32 or 64.
    """
    if layout.width not in (8, 16, 32, 64):
        raise LayoutError("elements are not whole bytes", expected="width 8, 16, 32 or 64", found=layout.width)
    dtype = np.dtype(f"<u{layout.width // 8}")
    for row, col, view in box_views(buffer, layout, start, stop):
        yield row, col, view.view(dtype)[..., 0]


def nibble_views(buffer: Bytes, layout: Layout, start: int, stop: int) -> Iterator[tuple[Box, Box, ByteBox, Bytes]]:
    """Rows `start:stop` of a layout of 4-bit elements: each box of digits, the boxes of bytes in it, and views of those.

    Raises
    ------
    LayoutError : addresses or strides that are no multiple of 4, or an element outside the buffer.
    """
    _check_fits(layout, 2 * len(buffer), WIDTH)
    row_boxes = list(boxes(layout.rows, start, stop))
    for row, col in product(row_boxes, boxes(layout.cols, 0, layout.shape[1])):
        digits = (*reversed(row.digits), *reversed(col.digits))
        for box in byte_boxes(layout.base + row.offset + col.offset, digits):
            shape, strides = tuple(size for size, _ in box.steps), tuple(stride for _, stride in box.steps)
            yield row, col, box, np.ndarray(shape, np.uint8, buffer=buffer, offset=box.offset, strides=strides)


def _check_fits(layout: Layout, cells: int, unit: int) -> None:
    steps = [d.stride for d in (*layout.rows, *layout.cols)]
    if any(bits % unit for bits in (layout.base, layout.width, *steps)):
        raise LayoutError(f"layout is not aligned to {unit} bits", found=layout)
    if layout.extent[1] > cells * unit:
        raise LayoutError("layout reaches outside the blob", expected=f"{cells * unit} bits", found=layout)
