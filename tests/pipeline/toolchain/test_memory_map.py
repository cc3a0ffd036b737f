"""The reference compiler's maps: published at seed 0, different in every respect at all others."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from layouts.stored import EngineLayout, Plane
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.toolchain.memory_map import draw_map
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.placed import Item
from tests.helpers.engines import true_layouts
from tests.helpers.tiny import tiny_config

SEEDS = range(20)
CHECKPOINT = NoiseCheckpoint(tiny_config("qwen3", num_hidden_layers=1), 1)


@pytest.fixture(scope="module")
def layers() -> list[EngineLayout]:
    """The layer's layout for each seed; making one checks that no two elements share a bit."""
    return [true_layouts(CHECKPOINT, CompileOptions(layout_seed=seed))["layer"] for seed in SEEDS]


@pytest.mark.parametrize(("codec", "rows", "block"), [("fp32", 32, 16512), ("bf16", 64, 129 * 128)])
def test_seed_0_is_the_published_layout(codec: str, rows: int, block: int) -> None:
    item = Item("w", (512, 128), codec)
    layout = draw_map([item], 0, "layer", share=0).placed["w"].copies[0].planes[0].pieces[0].layout
    assert layout.base % 1024 == 0
    for r, k in ((0, 0), (1, 0), (rows, 0), (rows + 3, 5), (511, 127)):
        expected = layout.base // 8 + item.width // 8 * (r % rows) + 128 * k + block * (r // rows)
        assert layout.address(r, k) == 8 * expected


def facts(layout: EngineLayout, name: str) -> dict[str, object]:
    stored = layout[name]
    first = stored.copies[0].planes[0].pieces[0].layout
    copied = sum(stop - start for copy in stored.copies[1:] for start, stop in copy.rows)
    return {
        "line length": first.cols[0].stride,
        "rows per block": first.rows[0].size,
        "share copied": copied,
        "first row copied": stored.copies[1].rows[0][0] if copied else None,
        "place": first.base,
    }


def test_seeds_vary_every_respect(layers: list[EngineLayout]) -> None:
    for name in ("self_attn.q_proj.weight", "mlp.gate_proj.weight", "mlp.down_proj.weight"):
        seen = [facts(layout, name) for layout in layers]
        for respect in seen[0]:
            assert len({fact[respect] for fact in seen}) >= 3, (name, respect)


def regions(layout: EngineLayout) -> list[tuple[int, int, str]]:
    return sorted(
        (
            min(piece.layout.extent[0] for piece in copy.planes[0].pieces),
            max(piece.layout.extent[1] for piece in copy.planes[0].pieces),
            f"{stored.name} {copy.name}",
        )
        for stored in layout.tensors
        for copy in stored.copies
    )


def test_seeds_vary_order_and_gaps(layers: list[EngineLayout]) -> None:
    orders = {tuple(name for _, _, name in regions(layout) if name.endswith("decode")) for layout in layers}
    assert len(orders) == len(layers)
    gaps = [tuple(b[0] - a[1] for a, b in pairwise(regions(layout))) for layout in layers]
    assert len(set(gaps)) == len(layers)
    assert all(gap >= 0 for own in gaps for gap in own)


def test_no_map_equals_another(layers: list[EngineLayout]) -> None:
    """Not one matrix has all of its elements at the same places under two seeds."""
    for a, b in combinations(layers, 2):
        same = [
            stored.name
            for stored, other in zip(a.tensors, b.tensors, strict=True)
            if stored.shape[0] > 1 and stored.copies[0] == other.copies[0]
        ]
        assert not same


def test_complete_copy_can_be_told_from_the_other(layers: list[EngineLayout]) -> None:
    for layout in layers:
        for stored in layout.tensors:
            for copy in stored.copies[1:]:
                assert copy.name == "prefill"
                assert copy.rows != ((0, stored.shape[0]),)


@pytest.mark.parametrize("codec", ["bf16", "s8", "s4"])
def test_prefill_reads_copied_rows_from_the_second_copy(codec: str) -> None:
    scales = CompileOptions("s8" if codec == "bf16" else codec).scales(codec)
    item = Item("w", (401, 300), codec, scales)
    copied = 0
    for seed in SEEDS:
        placed = draw_map([item], seed, "layer", share=0.4).placed["w"]
        copied += len(placed.copies) - 1
        fields = [[*copy.planes, *([copy.entries] if copy.entries else [])] for copy in placed.copies]
        for index, pieces in enumerate(own for own in placed.operand(prefill=True).fields if own):
            assert [piece.row for piece in pieces] == sorted(piece.row for piece in pieces)
            read = Plane(pieces).addresses(0, 401)
            expected = fields[0][index].addresses(0, 401)
            for start, stop in placed.copies[-1].rows:
                expected[start:stop] = fields[-1][index].addresses(start, stop)
            assert np.array_equal(read, expected)
        complete = placed.operand(prefill=False).fields
        assert [own for own in complete if own] == [plane.pieces for plane in fields[0]]
    assert 5 < copied < len(SEEDS)


@pytest.mark.parametrize(("share", "copied"), [(0.0, 0), (0.25, 3), (0.4, 5), (0.5, 6), (1.0, 11)])
@pytest.mark.parametrize("codec", ["bf16", "s8"])
def test_share_of_seed_0(share: float, copied: int, codec: str) -> None:
    """Twelve blocks; at least one is never copied."""
    block = 64 if codec == "bf16" else 32
    item = Item("w", (12 * block, 40), codec, CompileOptions(codec).scales(codec))
    copies = draw_map([item], 0, "layer", share).placed["w"].copies
    assert [copy.rows for copy in copies[1:]] == ([((0, copied * block),)] if copied else [])


def test_share_0_has_no_copies_under_any_seed() -> None:
    item = Item("w", (999, 40), "bf16")
    assert all(len(draw_map([item], seed, "layer", 0).placed["w"].copies) == 1 for seed in SEEDS)


def test_options_and_shape_decide_the_map_and_weights_do_not() -> None:
    other = NoiseCheckpoint(CHECKPOINT.config, 2)
    assert true_layouts(other, CompileOptions(layout_seed=5)) == true_layouts(CHECKPOINT, CompileOptions(layout_seed=5))
