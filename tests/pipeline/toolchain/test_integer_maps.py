"""Maps of integer matrices: published at seed 0, of bounded size and different in every respect at all others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layouts.fit import fit
from layouts.stored import EngineLayout, Plane
from pipeline.toolchain.draw import Draw
from pipeline.toolchain.integer_blocks import draw_integer_style
from pipeline.toolchain.memory_map import draw_map
from pipeline.toolchain.microcode import KIND_LAYER, Program
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.placed import Item, MemoryMap

SEEDS = range(20)
SHAPES = [(rows, cols) for rows in (1, 15, 17, 31, 33) for cols in (36, 37, 255, 257)] + [(320, 864), (160, 320)]


def item_of(weight_type: str, shape: tuple[int, int], name: str = "w") -> Item:
    return Item(name, shape, weight_type, CompileOptions(weight_type).scales(weight_type))


def layout_of(memory: MemoryMap) -> EngineLayout:
    """Making one checks that all lies in the blob and no two elements share a bit."""
    return EngineLayout("layer", "npu_params", memory.size, tuple(p.stored() for p in memory.placed.values()))


def fields(layout: EngineLayout, name: str) -> Iterator[Plane]:
    for copy in layout[name].copies:
        assert copy.entries is not None
        yield from (*copy.planes, copy.entries)


@pytest.mark.parametrize("place", [0, 1])
def test_seed_0_of_s8_is_the_published_layout(place: int) -> None:
    """Byte and nibble as measured for W[64, 384] (axmodel facts, section 3); entries in clusters behind the slots."""
    items = [item_of("s8", (96, 50), "other"), item_of("s8", (64, 384))][1 - place :]
    fine, coarse, entries = fields(layout_of(draw_map(items, 0, "layer", share=0)), "w")
    base = fine.pieces[0].layout.base
    assert base % 1024 == 0
    for r, k in ((0, 0), (0, 1), (0, 35), (0, 36), (15, 383), (16, 0), (31, 40), (32, 2), (63, 383)):
        byte = 12928 * (r // 32) + 36 * ((r // 16) % 2) + 792 * (r % 16) + 72 * (k // 36) + (k % 36) // 2
        at = base + 8 * byte + 4 * (k % 36 % 2)
        assert fine.addresses(r, r + 1)[0, k] == at
        assert coarse.addresses(r, r + 1)[0, k] == at + 8 * 18
        entry = 12928 * (r // 32) + 12672 + 4 * (32 * (k // 256) + r % 32)
        assert entries.addresses(r, r + 1)[0, k // 256] == base + 8 * entry
    assert [(plane.low_bit, plane.bits, plane.bias) for plane in (fine, coarse)] == [(0, 4, 0), (4, 4, 8)]


def test_seed_0_of_s4() -> None:
    (plane, entries) = fields(layout_of(draw_map([item_of("s4", (70, 300))], 0, "layer", share=0)), "w")
    base, slot = plane.pieces[0].layout.base, 32 * 10
    block = 16 * slot + 192
    for r, k in ((0, 0), (15, 31), (16, 32), (31, 299), (64, 7), (69, 299)):
        byte = block * (r // 32) + 16 * ((r // 16) % 2) + slot * (r % 16) + 32 * (k // 32) + (k % 32) // 2
        assert plane.addresses(r, r + 1)[0, k] == base + 8 * byte + 4 * (k % 2)
        entry = block * (r // 32) + 16 * slot + 2 * (32 * (k // 128) + r % 32)
        assert entries.addresses(r, r + 1)[0, k // 128] == base + 8 * entry
    assert (plane.bits, plane.bias) == (4, 8)


@pytest.mark.parametrize("weight_type", ["s8", "s4"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_shape_can_be_fitted_and_executed(weight_type: str, seed: int) -> None:
    items = [item_of(weight_type, shape, f"w{shape[0]}.{shape[1]}") for shape in SHAPES]
    memory = draw_map(items, seed, "layer", share=0.4)
    layout = layout_of(memory)
    for stored in layout.tensors:
        for plane in fields(layout, stored.name):
            for start, stop in plane.rows:
                addresses = plane.addresses(start, stop)
                found = Plane(fit(addresses, plane.width)).addresses(0, stop - start)
                assert (found == addresses).all()
    for prefill in (False, True):
        program = Program(KIND_LAYER, 0, 1, 1)
        for placed in memory.placed.values():
            program.tensor(placed.operand(prefill))
        assert program.encode()


@pytest.mark.parametrize("weight_type", ["s8", "s4"])
def test_seeds_vary_every_respect(weight_type: str) -> None:
    styles = [draw_integer_style(Draw(seed, "style"), weight_type) for seed in range(40)]
    for respect in styles[0].__dataclass_fields__:
        assert len({getattr(style, respect) for style in styles}) >= 2, respect
    assert {style.chunk % 2 for style in styles} == {0}
    assert {16, 32, 48, 64} == {style.block_rows for style in styles}
    assert all(style.block_rows % (2 * style.pair) == 0 for style in styles)
    assert any(style.pair == 1 for style in styles)


@pytest.mark.parametrize("weight_type", ["s8", "s4"])
def test_no_map_equals_another(weight_type: str) -> None:
    items = [item_of(weight_type, (160, 320), name) for name in "ab"]
    maps = [draw_map(items, seed, "layer", share=0.4) for seed in SEEDS]
    assert len({(p.placed["a"].copies[0], p.placed["b"].copies[0]) for p in maps}) == len(SEEDS)
    phases = {pieces.layout.base % 64 for p in maps for pieces in p.placed["a"].copies[0].planes[0].pieces}
    assert len(phases) > 3  # odd bytes are among them
    assert all(layout_of(memory) for memory in maps)


def test_zeroed_ranges_hold_all_integers_and_no_floats() -> None:
    items = [item_of("s8", (100, 320), "a"), Item("n", (1, 320), "bf16"), item_of("s8", (33, 37), "b")]
    for seed in SEEDS:
        memory = draw_map(items, seed, "layer", share=0.4)
        for placed in memory.placed.values():
            for layout in placed.stored().layouts():
                first, last = (layout.extent[0] // 8, -(-layout.extent[1] // 8))
                inside = [start <= first and last <= stop for start, stop in memory.zeroed]
                outside = [last <= start or stop <= first for start, stop in memory.zeroed]
                assert any(inside) if placed.item.scales else all(outside)
