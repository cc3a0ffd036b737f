"""Maps of integer matrices: chunks of 4-bit planes, row pairs, blocks, and scale entries (docs/quantization.md, Planes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from layouts.algebra import Digit, Layout, Piece
from pipeline.errors import InternalError
from pipeline.toolchain.draw import Draw
from pipeline.toolchain.placed import ENTRIES, HIGH, LOW, Area, Item, entry_bytes

PUBLISHED_CHUNK = {"s8": 36, "s4": 32}
CLUSTER_BYTES = {"s8": 256, "s4": 64}
"""A block's entries are padded to whole clusters."""

PlanesIn = Literal["chunk", "block", "areas"]
EntriesIn = Literal["behind", "before", "area"]


@dataclass(frozen=True)
class IntegerStyle:
    """How one copy stores an integer matrix; `slack` and `gap` in bytes, other lengths in elements.

    pair : distance of the two rows that share a slot
    planes : side by side in every chunk, one behind the other in every block, or in areas of their own
    entries : behind or before the slots of each block, or in an area of their own
    group_fast : entries of a row stand together; otherwise those of a group
    step : entries that an entry takes
    slack, gap : behind a slot, behind a block
    loose_tail : a last partial block is a block of its own, no larger than it need be
    """

    block_rows: int
    pair: int
    chunk: int
    planes: PlanesIn
    coarse_first: bool
    entries: EntriesIn
    group_fast: bool
    step: int
    slack: int
    gap: int
    descending: bool
    loose_tail: bool


def draw_integer_style(draw: Draw, codec: str) -> IntegerStyle:
    block_rows = draw.pick(32, 16, 32, 48, 64)
    half = block_rows // 2
    return IntegerStyle(
        block_rows=block_rows,
        pair=draw.pick(half, *(distance for distance in range(1, half + 1) if half % distance == 0)),
        chunk=draw.pick(PUBLISHED_CHUNK[codec], 16, 22, 24, 32, 36, 48, 50, 64),
        planes=draw.pick("chunk", "chunk", "block", "areas"),
        coarse_first=draw.pick(False, True),
        entries=draw.pick("behind", "behind", "before", "area"),
        group_fast=draw.pick(False, True),
        step=draw.pick(1, 1, 1, 2),
        slack=draw.pick(0, 0, 0, 16, 7),
        gap=draw.pick(0, 0, 64, 5),
        descending=draw.pick(False, False, False, True),
        loose_tail=draw.pick(False, True),
    )


def integer_areas(style: IntegerStyle, item: Item, rows: int, row: int) -> list[Area]:
    """The areas of `rows` rows of a matrix from `row` on: slots of each plane, and entries where they stand apart."""
    tail = rows % style.block_rows if style.loose_tail and rows > style.block_rows else 0
    areas = _blocks(style, item, rows - tail, row)
    if tail:
        narrow = replace(style, block_rows=tail + tail % 2, pair=-(-tail // 2), slack=0, gap=0, descending=False)
        last = _blocks(narrow, item, tail, row + rows - tail)
        areas = [area.followed(more) for area, more in zip(areas, last, strict=True)]
    return [*areas, *([_entry_area(style, item, rows, row)] if style.entries == "area" else [])]


def _blocks(style: IntegerStyle, item: Item, rows: int, row: int) -> list[Area]:
    """One area for all planes, or one for each; entries of the blocks are in the first."""
    planes = [LOW] if item.codec == "s4" else [HIGH, LOW] if style.coarse_first else [LOW, HIGH]
    if style.planes == "areas":
        return [_area(style, item, (rows, row), [plane], index == 0) for index, plane in enumerate(planes)]
    return [_area(style, item, (rows, row), planes, True)]


def _area(style: IntegerStyle, item: Item, span: tuple[int, int], planes: list[int], holds_entries: bool) -> Area:
    """Blocks of slots. A slot is `[chunk][row of the pair]`, a chunk of a row `unit` bytes."""
    abreast = len(planes) if style.planes == "chunk" else 1
    unit = style.chunk // 2 * abreast
    slot = 2 * unit * -(-item.shape[1] // style.chunk) + style.slack
    slots = style.block_rows // 2 * slot
    entries = _cluster_bytes(style, item) if holds_entries and style.entries != "area" else 0
    block = entries + slots * (len(planes) // abreast) + style.gap
    blocks = -(-span[0] // style.block_rows)
    first = entries if style.entries == "before" else 0
    apart = style.chunk // 2 if abreast > 1 else slots
    fields = {
        plane: _slot_piece(style, item, span, (first + index * apart, unit, slot, block))
        for index, plane in enumerate(planes)
    }
    if entries:
        at = 0 if style.entries == "before" else block - style.gap - entries
        fields[ENTRIES] = _entry_piece(style, item, span, (at, block))
    return Area(fields, blocks * block, zeroed=True)


def _slot_piece(
    style: IntegerStyle, item: Item, span: tuple[int, int], lengths: tuple[int, int, int, int]
) -> tuple[Piece, ...]:
    """Row = (within a half, which half, half pairs, block); lengths in bytes: of the start, a chunk, a slot, a block."""
    start, unit, slot, block = lengths
    (rows, row), cols = span, item.shape[1]
    base, digit = _block_digit(style, rows, block)
    layout = Layout(
        shape=(rows, cols),
        base=8 * (base + start),
        rows=(
            Digit(style.pair, 8 * slot),
            Digit(2, 8 * unit),
            Digit(style.block_rows // (2 * style.pair), 8 * slot * style.pair),
            digit,
        ),
        cols=(Digit(style.chunk, 4), Digit(-(-cols // style.chunk), 16 * unit)),
        width=4,
    )
    return (Piece(row, 0, layout),)


def _entry_piece(style: IntegerStyle, item: Item, span: tuple[int, int], at: tuple[int, int]) -> tuple[Piece, ...]:
    """The entries of blocks: `at` is the first byte and the bytes of a block."""
    start, block = at
    base, digit = _block_digit(style, span[0], block)
    return _entries(style, item, span, 8 * (base + start), style.block_rows, (digit,))


def _entry_area(style: IntegerStyle, item: Item, rows: int, row: int) -> Area:
    pieces = _entries(style, item, (rows, row), 0, rows, ())
    return Area({ENTRIES: pieces}, pieces[0].layout.extent[1] // 8, zeroed=True)


def _entries(
    style: IntegerStyle, item: Item, span: tuple[int, int], base: int, lanes: int, outer: tuple[Digit, ...]
) -> tuple[Piece, ...]:
    groups, width = _entry_facts(item)
    step = width * style.step
    row_step, group_step = (groups * step, step) if style.group_fast else (step, lanes * step)
    layout = Layout((span[0], groups), base, (Digit(lanes, row_step), *outer), (Digit(groups, group_step),), width)
    return (Piece(span[1], 0, layout),)


def _cluster_bytes(style: IntegerStyle, item: Item) -> int:
    """Bytes of a block's entries, padding included."""
    groups, width = _entry_facts(item)
    cluster = CLUSTER_BYTES[item.codec]
    return -(-style.block_rows * groups * style.step * width // (8 * cluster)) * cluster


def _entry_facts(item: Item) -> tuple[int, int]:
    """Entries of a row, and bits of an entry."""
    if item.scales is None:
        raise InternalError(f"{item.name} has no scale entries")
    return item.scales.groups(item.shape[1]), 8 * entry_bytes(item.scales)


def _block_digit(style: IntegerStyle, rows: int, block: int) -> tuple[int, Digit]:
    """First byte of block 0, and the digit that counts blocks of so many bytes."""
    blocks = -(-rows // style.block_rows)
    if style.descending:
        return (blocks - 1) * block, Digit(blocks, -8 * block)
    return 0, Digit(blocks, 8 * block)
