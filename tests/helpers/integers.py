"""Integer tensors: the published placement, and placements that no compiler would choose."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.encoding import Encoded
from layouts.entry_codecs import ENTRIES, entry_codec
from layouts.integers import integer_codec
from layouts.scales import DIVISORS, Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.layouts import moved

RULES = {"s8": Scales("reciprocal", 256, 127.0, True), "s4": Scales("bf16", 128, 7.0, False)}
CHUNKS = {"s8": (36, 18), "s4": (32, 16)}
"""Columns of a chunk, and bytes of one plane of it."""


def published(
    name: str, shape: tuple[int, int], kind: str = "s8", first_byte: int = 0, scales: Scales | None = None
) -> StoredTensor:
    """One copy as the facts describe it: blocks of 32 rows, rows 16 apart in one slot, entries behind each block."""
    scales = scales or RULES[kind]
    return StoredTensor(name, shape, kind, (published_copy("decode", shape, kind, first_byte, scales),), scales)


def published_copy(name: str, shape: tuple[int, int], kind: str, first_byte: int, scales: Scales, row: int = 0) -> Copy:
    """A copy of `shape` that holds rows from `row` on."""
    cols, size = CHUNKS[kind]
    chunk, chunks, blocks = size * integer_codec(kind).width // 4, -(-shape[1] // cols), -(-shape[0] // 32)
    entry, groups = entry_codec(scales.entry).width // 8, scales.groups(shape[1])
    codes = 16 * 2 * chunk * chunks
    block = codes + 64 * -(-32 * groups * entry // 64)
    base = 8 * first_byte

    def layout(at: int, width: int, shape: tuple[int, int], rows: int, pair: int, cols: tuple[Digit, ...]) -> Plane:
        digits = (Digit(16, rows), Digit(2, pair), Digit(blocks, 8 * block))
        return Plane((Piece(row, 0, Layout(shape, at, digits, cols, width)),), bias=8 if width == 4 else 0)

    columns = (Digit(cols, 4), Digit(chunks, 16 * chunk))
    first = layout(base, 4, shape, 16 * chunk * chunks, 8 * chunk, columns)
    coarse = layout(base + 8 * size, 4, shape, 16 * chunk * chunks, 8 * chunk, columns)
    entries = layout(
        base + 8 * codes, 8 * entry, (shape[0], groups), 8 * entry, 128 * entry, (Digit(groups, 256 * entry),)
    )
    both = (Plane(first.pieces), Plane(coarse.pieces, 4, 4, 8)) if kind == "s8" else (first,)
    return Copy(name, both, entries)


@st.composite
def planes_of(draw: st.DrawFn, shape: tuple[int, int], width: int) -> Layout:
    """Any nested digits over a given shape, in any order, at any address that the width allows."""
    grain = 4 if width == 4 else 8
    sizes = [draw(_factors(n)) for n in shape]
    order = draw(st.permutations([(axis, i) for axis in (0, 1) for i in range(len(sizes[axis]))]))
    digits: dict[tuple[int, int], Digit] = {}
    reach, low = width, 0
    for axis, i in order:
        stride = reach + grain * draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
        back = draw(st.integers(0, 7)) == 0
        low += (sizes[axis][i] - 1) * stride if back else 0
        digits[axis, i] = Digit(sizes[axis][i], -stride if back else stride)
        reach += (sizes[axis][i] - 1) * stride
    axes = [tuple(digits[axis, i] for i in range(len(sizes[axis]))) for axis in (0, 1)]
    return Layout(shape, low, axes[0], axes[1], width)


@st.composite
def _factors(draw: st.DrawFn, n: int) -> list[int]:
    """Sizes of digits that cover an axis of n."""
    sizes: list[int] = []
    while prod(sizes) < n:
        rest = -(-n // prod(sizes))
        sizes.append(draw(st.integers(2, 7)) if len(sizes) < 2 and rest > 7 else max(rest, 2))
    return sizes


@st.composite
def integer_tensors(draw: st.DrawFn, name: str = "w", first_bit: int = 0) -> tuple[StoredTensor, int]:
    """A tensor of one or two copies, planes and entries one after the other from a bit on, and the bit behind it."""
    kind = draw(st.sampled_from(["s8", "s4"]))
    shape = (draw(st.integers(1, 40)), draw(st.integers(1, 90)))
    group = draw(st.sampled_from([1, 7, 32, 36, 256]))
    scales = Scales(
        draw(st.sampled_from(list(ENTRIES))), group, draw(st.sampled_from(DIVISORS[kind])), draw(st.booleans())
    )
    ranges = [(0, shape[0])]
    if draw(st.booleans()):
        start = draw(st.integers(0, shape[0] - 1))
        ranges.append((start, draw(st.integers(start + 1, shape[0]))))
    copies, end = [], first_bit
    for copy, (start, stop) in zip(("decode", "prefill"), ranges, strict=False):
        placed = []
        for width, cols in [*[(4, shape[1])] * (2 if kind == "s8" else 1), (0, scales.groups(shape[1]))]:
            bits = width or entry_codec(scales.entry).width
            end = end if bits == 4 else -(-end // 8) * 8
            layout = moved(draw(planes_of((stop - start, cols), bits)), end)
            end = layout.extent[1] + draw(st.sampled_from([0, 0, 4, 8]))
            placed.append(layout)
        *first, last = [(Piece(start, 0, layout),) for layout in placed]
        planes = (Plane(first[0]), Plane(first[1], 4, 4, 8)) if kind == "s8" else (Plane(first[0], bias=8),)
        copies.append(Copy(copy, planes, Plane(last)))
    return StoredTensor(name, shape, kind, tuple(copies), scales), end


@st.composite
def integer_engines(draw: st.DrawFn) -> EngineLayout:
    """One to three integer tensors, neighbours often in one byte."""
    tensors, end = [], draw(st.sampled_from([0, 4, 8, 20]))
    for name in ("mlp.up_proj.weight", "mlp.down_proj.weight", "lm_head.weight")[: draw(st.integers(1, 3))]:
        stored, end = draw(integer_tensors(name, end))
        tensors.append(stored)
    return EngineLayout("layer", "npu_params", end // 8 + 1 + draw(st.integers(0, 3)), tuple(tensors))


def random_encoded(stored: StoredTensor, rows: int, seed: int) -> Encoded:
    """Any bits in every integer and in every entry."""
    noise = np.random.default_rng(seed)
    assert stored.scales is not None
    width = integer_codec(stored.codec).width
    raw = noise.integers(0, 1 << width, (rows, stored.shape[1]), np.uint8)
    dtype = entry_codec(stored.scales.entry).raw_dtype
    shape = (rows, stored.scales.groups(stored.shape[1]))
    return Encoded(raw, noise.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True))
