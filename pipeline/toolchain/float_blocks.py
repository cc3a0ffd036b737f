"""Maps of float matrices and vectors: lines of one k for a block of rows (axmodel facts, section 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from layouts.algebra import Digit, Layout, Piece
from pipeline.toolchain.draw import Draw
from pipeline.toolchain.placed import LOW, Area

LINE_BITS = 1024


@dataclass(frozen=True)
class FloatStyle:
    """How one copy stores a float matrix; lengths in bytes."""

    block_rows: int
    slack: int
    tail_lines: int
    chunk: int
    chunk_gap: int
    descending: bool
    loose_tail: bool


def draw_float_style(draw: Draw, cols: int, width: int) -> FloatStyle:
    return FloatStyle(
        block_rows=draw.pick(LINE_BITS // width, 16, 32, 48, 64, 128),
        slack=draw.pick(0, 0, 16, 32, 7),
        tail_lines=draw.pick(1, 0, 2, 3),
        chunk=draw.pick(cols, cols, 32, 96),
        chunk_gap=draw.pick(0, 0, 64, 10),
        descending=draw.pick(False, False, False, True),
        loose_tail=draw.pick(False, True),
    )


def float_area(style: FloatStyle, shape: tuple[int, int], width: int, row: int) -> Area:
    """`shape` rows and columns of a matrix, its rows from `row` on."""
    rows, cols = shape
    tail = rows % style.block_rows
    if not style.loose_tail or not tail or rows < style.block_rows:
        return _blocks(style, shape, width, row)
    narrow = replace(style, block_rows=tail, tail_lines=0, slack=0, chunk=cols)
    whole = _blocks(style, (rows - tail, cols), width, row)
    return whole.followed(_blocks(narrow, (tail, cols), width, row + rows - tail))


def _blocks(style: FloatStyle, shape: tuple[int, int], width: int, row: int) -> Area:
    """Lines of one k for `block_rows` rows each."""
    rows, cols = shape
    lanes = min(style.block_rows, rows)
    line = style.block_rows * width // 8 + style.slack
    chunk = min(style.chunk, cols)
    chunks = -(-cols // chunk)
    chunk_stride = chunk * line + (style.chunk_gap if chunks > 1 else 0)
    block_stride = chunks * chunk_stride + style.tail_lines * line
    blocks = -(-rows // lanes)
    descending = style.descending and blocks > 1
    layout = Layout(
        shape=shape,
        base=8 * (blocks - 1) * block_stride if descending else 0,
        rows=(Digit(lanes, width), Digit(blocks, -8 * block_stride if descending else 8 * block_stride)),
        cols=(Digit(chunk, 8 * line), Digit(chunks, 8 * chunk_stride)),
        width=width,
    )
    return Area({LOW: (Piece(row, 0, layout),)}, blocks * block_stride)


def vector_area(draw: Draw, length: int, width: int) -> Area:
    """A vector, its elements perhaps apart."""
    step = draw.pick(width, width, 2 * width)
    run = draw.pick(length, length, 64)
    gap = draw.pick(0, 0, 128)
    runs = -(-length // run)
    stride = run * step + 8 * gap
    layout = Layout((1, length), 0, (), (Digit(min(run, length), step), Digit(runs, stride)), width)
    return Area({LOW: (Piece(0, 0, layout),)}, -(-runs * stride // 8))


def table_area(shape: tuple[int, int], width: int) -> Area:
    """Row-major, without gaps."""
    rows, cols = shape
    layout = Layout(shape, 0, (Digit(rows, cols * width),), (Digit(cols, width),), width)
    return Area({LOW: (Piece(0, 0, layout),)}, rows * cols * width // 8)
