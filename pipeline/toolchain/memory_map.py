"""Where the reference compiler puts things: one map per engine, drawn from the layout seed.

Seed 0 is the published layout (axmodel facts, section 2): 128-byte lines of one k each, one more line after every block of
rows, 128-byte alignment. Any other seed draws line length, rows per block, order of blocks, column chunks, element strides,
tensor order, gaps, alignment (odd bytes included), and which rows get a second copy for prefill.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from layouts.algebra import Digit, Layout, Piece

PREFILL_SHARE = 0.4
LINE_BITS = 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """A thing to be placed: a weight (`constant` False) or a table; `shape` rows first, `width` in bits."""

    name: str
    shape: tuple[int, int]
    width: int
    constant: bool = False


@dataclass(frozen=True)
class Placed:
    """Pieces of the complete copy, and of the second copy with the row range it covers (empty when there is none)."""

    item: Item
    decode: tuple[Piece, ...]
    copy: tuple[Piece, ...] = ()

    def prefill(self) -> tuple[Piece, ...]:
        """What a prefill group reads: the copied rows from the second copy, all others from the first."""
        if not self.copy:
            return self.decode
        start, stop = self.copy[0].row, self.copy[-1].row + self.copy[-1].layout.shape[0]
        before = [part for piece in self.decode for part in _clip(piece, 0, start)]
        after = [part for piece in self.decode for part in _clip(piece, stop, self.item.shape[0])]
        return (*before, *self.copy, *after)


@dataclass(frozen=True)
class MemoryMap:
    """The whole blob: every item, and its size in bytes. `fill_seed` gives the bytes of the gaps."""

    placed: dict[str, Placed]
    size: int
    fill_seed: int


class Draw:
    """Seeded choices; only `random()` is used, whose stream Python guarantees."""

    def __init__(self, seed: int, salt: str) -> None:
        self._random = random.Random(f"engineset reference map {seed} {salt}")
        self.published = seed == 0

    def pick(self, published: T, *others: T) -> T:
        """`published` for seed 0, otherwise one of all choices."""
        choices = (published, *others)
        drawn = choices[int(self._random.random() * len(choices))]
        return published if self.published else drawn

    def below(self, n: int) -> int:
        return int(self._random.random() * n)

    def shuffle(self, items: Iterable[T]) -> list[T]:
        return [item for _, item in sorted(((self._random.random(), item) for item in items), key=lambda pair: pair[0])]


@dataclass(frozen=True)
class _Style:
    """How one region stores a matrix; lengths in bytes."""

    block_rows: int
    slack: int
    tail_lines: int
    chunk: int
    chunk_gap: int
    descending: bool
    loose_tail: bool


def _draw_style(draw: Draw, cols: int, width: int) -> _Style:
    return _Style(
        block_rows=draw.pick(LINE_BITS // width, 16, 32, 48, 64, 128),
        slack=draw.pick(0, 0, 16, 32, 7),
        tail_lines=draw.pick(1, 0, 2, 3),
        chunk=draw.pick(cols, cols, 32, 96),
        chunk_gap=draw.pick(0, 0, 64, 10),
        descending=draw.pick(False, False, False, True),
        loose_tail=draw.pick(False, True),
    )


def _blocks(style: _Style, shape: tuple[int, int], width: int, row: int) -> tuple[list[Piece], int]:
    """Lines of one k for `block_rows` rows each, from byte 0 on; the piece, and the bytes that it takes."""
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
    return [Piece(row, 0, layout)], blocks * block_stride


def _matrix(style: _Style, shape: tuple[int, int], width: int, row: int) -> tuple[list[Piece], int]:
    rows, cols = shape
    tail = rows % style.block_rows
    if not style.loose_tail or not tail or rows < style.block_rows:
        return _blocks(style, shape, width, row)
    pieces, size = _blocks(style, (rows - tail, cols), width, row)
    narrow = replace(style, block_rows=tail, tail_lines=0, slack=0, chunk=cols)
    last, more = _blocks(narrow, (tail, cols), width, row + rows - tail)
    return [*pieces, *(_move(piece, 8 * size) for piece in last)], size + more


def _vector(draw: Draw, length: int, width: int) -> tuple[list[Piece], int]:
    step = draw.pick(width, width, 2 * width)
    run = draw.pick(length, length, 64)
    gap = draw.pick(0, 0, 128)
    runs = -(-length // run)
    stride = run * step + 8 * gap
    layout = Layout((1, length), 0, (), (Digit(min(run, length), step), Digit(runs, stride)), width)
    return [Piece(0, 0, layout)], -(-runs * stride // 8)


def _move(piece: Piece, bits: int) -> Piece:
    return replace(piece, layout=replace(piece.layout, base=piece.layout.base + bits))


def _clip(piece: Piece, start: int, stop: int) -> list[Piece]:
    """The rows `start:stop` of a piece; `start` falls on a block boundary of the piece."""
    layout = piece.layout
    first, last = max(start - piece.row, 0), min(stop - piece.row, layout.shape[0])
    if first >= last:
        return []
    base = layout.address(first, 0)
    rest = replace(layout, shape=(last - first, layout.shape[1]), base=base)
    return [Piece(piece.row + first, 0, rest)]


@dataclass
class _Region:
    name: str
    pieces: list[Piece]
    size: int
    second: bool


def _regions(item: Item, draw: Draw, copies: bool) -> list[_Region]:
    rows, cols = item.shape
    if item.constant or rows == 1:
        pieces, size = _vector(draw, cols, item.width) if rows == 1 else _table(item)
        return [_Region(item.name, pieces, size, False)]
    style = _draw_style(draw, cols, item.width)
    pieces, size = _matrix(style, item.shape, item.width, 0)
    regions = [_Region(item.name, pieces, size, False)]
    if not copies:
        return regions
    whole = rows // style.block_rows
    if whole < 3:  # with fewer blocks nothing but their names would tell the copies apart
        return regions
    copied = min(draw.pick(round(PREFILL_SHARE * whole), 0, whole // 2, whole - 1, 1), whole - 1)
    if copied > 0:
        first = draw.pick(0, draw.below(whole - copied + 1)) * style.block_rows
        second = _draw_style(draw, cols, item.width)
        shape = (copied * style.block_rows, cols)
        pieces, size = _matrix(second, shape, item.width, first)
        regions.append(_Region(item.name, pieces, size, True))
    return regions


def _table(item: Item) -> tuple[list[Piece], int]:
    rows, cols = item.shape
    layout = Layout(item.shape, 0, (Digit(rows, cols * item.width),), (Digit(cols, item.width),), item.width)
    return [Piece(0, 0, layout)], rows * cols * item.width // 8


def draw_map(items: list[Item], seed: int, engine: str, copies: bool) -> MemoryMap:
    """Place every item, with second copies for prefill if `copies`. Equal arguments give an equal map on every machine."""
    draw = Draw(seed, engine)
    regions = [region for item in items for region in _regions(item, draw, copies)]
    ordered = regions if draw.published else draw.shuffle(regions)
    found: dict[tuple[str, bool], tuple[Piece, ...]] = {}
    at = draw.pick(0, draw.below(200))
    for region in ordered:
        alignment = draw.pick(128, 1, 2, 64, 256)
        at = -(-at // alignment) * alignment + draw.pick(0, 0, draw.below(300), 1 if alignment == 1 else 0)
        found[region.name, region.second] = tuple(_move(piece, 8 * at) for piece in region.pieces)
        at += region.size
    size = -(-at // 64) * 64
    placed = {item.name: Placed(item, found[item.name, False], found.get((item.name, True), ())) for item in items}
    return MemoryMap(placed, size, draw.below(1 << 30))
