"""Where the reference compiler puts things: one map per engine, drawn from the layout seed.

Seed 0 is the published layout (axmodel facts, sections 2 and 3). Any other seed draws how each matrix is stored
(float_blocks.py, integer_blocks.py), the order of areas, gaps, alignment (odd bytes included), and which rows get a second
copy for prefill.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.toolchain.draw import Draw
from pipeline.toolchain.float_blocks import draw_float_style, float_area, table_area, vector_area
from pipeline.toolchain.integer_blocks import draw_integer_style, integer_areas
from pipeline.toolchain.placed import Area, Item, MemoryMap, Pieces, Placed, make_copy

Store = Callable[[int, int], list[Area]]
"""The areas of so many rows of a matrix from a row on."""


@dataclass(frozen=True)
class _Region:
    name: str
    second: bool
    area: Area


def _draw_store(item: Item, draw: Draw) -> tuple[int, Store]:
    """How one copy of a matrix is stored: rows of a block, and the function that makes its areas."""
    if item.scales is not None:
        integer = draw_integer_style(draw, item.codec)
        return integer.block_rows, lambda rows, row: integer_areas(integer, item, rows, row)
    style = draw_float_style(draw, item.shape[1], item.width)
    return style.block_rows, lambda rows, row: [float_area(style, (rows, item.shape[1]), item.width, row)]


def _regions(item: Item, draw: Draw, share: float) -> list[_Region]:
    rows, cols = item.shape
    if rows == 1 and item.scales is None:
        return [_Region(item.name, False, vector_area(draw, cols, item.width))]
    if item.constant:
        return [_Region(item.name, False, table_area(item.shape, item.width))]
    block, store = _draw_store(item, draw)
    regions = [_Region(item.name, False, area) for area in store(rows, 0)]
    whole = rows // block
    if not share or whole < 3:  # with fewer blocks nothing but their names would tell the copies apart
        return regions
    copied = min(draw.pick(round(share * whole), 0, whole // 2, whole - 1, 1), whole - 1)
    if copied > 0:
        first = draw.pick(0, draw.below(whole - copied + 1)) * block
        _, second = _draw_store(item, draw)
        regions += [_Region(item.name, True, area) for area in second(copied * block, first)]
    return regions


def draw_map(items: list[Item], seed: int, engine: str, share: float) -> MemoryMap:
    """Place every item. Equal arguments give an equal map on every machine.

    Parameters
    ----------
    engine : salt of the seed
    share : part of each matrix's blocks that seed 0 stores a second time for prefill; with 0 no seed stores any
    """
    draw = Draw(seed, engine)
    regions = [region for item in items for region in _regions(item, draw, share)]
    found: dict[tuple[str, bool], dict[int, Pieces]] = {}
    zeroed = []
    ordered = regions if draw.published else draw.shuffle(regions)
    at = draw.pick(0, draw.below(200))
    for region in ordered:
        alignment = draw.pick(128, 1, 2, 64, 256)
        at = -(-at // alignment) * alignment + draw.pick(0, 0, draw.below(300), 1 if alignment == 1 else 0)
        found.setdefault((region.name, region.second), {}).update(region.area.moved(at).fields)
        zeroed += [(at, at + region.area.size)] if region.area.zeroed else []
        at += region.area.size
    placed = {item.name: _placed(item, found) for item in items}
    return MemoryMap(placed, -(-at // 64) * 64, draw.below(1 << 30), tuple(zeroed))


def _placed(item: Item, found: dict[tuple[str, bool], dict[int, Pieces]]) -> Placed:
    names = {False: "decode", True: "prefill"}
    copies = [make_copy(names[own], item, found[item.name, own]) for own in names if (item.name, own) in found]
    return Placed(item, tuple(copies))
