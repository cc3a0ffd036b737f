"""Hypothesis strategies for layouts that a compiler could have made, and for some that none would."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.codecs import codec
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

ENGINE_NAMES = (
    "self_attn.q_proj.weight",
    "mlp.down_proj.weight",
    "lm_head.weight",
    "input_layernorm.weight",
    "self_attn.q_norm.weight",
)


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


@st.composite
def engines(draw: st.DrawFn) -> EngineLayout:
    """Tensors of mixed codecs one after the other in a blob, at odd bytes, some with a second copy of some rows."""
    tensors, end = [], 0
    for name in draw(st.lists(st.sampled_from(ENGINE_NAMES), min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["bf16", "bf16_truncated", "fp16", "fp32"]))
        first = draw(layouts(codec(kind).width, grain=8))
        if name.endswith("norm.weight"):
            first = Layout((1, first.shape[1]), first.base, (), first.cols, first.width)
        copies = [Copy("decode", (Plane((Piece(0, 0, moved(first, end)),)),))]
        end = copies[0].planes[0].pieces[0].layout.extent[1] + 8 * draw(st.integers(0, 3))
        if first.shape[0] > 1 and draw(st.booleans()):
            row = draw(st.integers(0, first.shape[0] - 1))
            shape = (draw(st.integers(1, first.shape[0] - row)), first.shape[1])
            second = moved(Layout(shape, first.base, first.rows, first.cols, first.width), end)
            copies.append(Copy("prefill", (Plane((Piece(row, 0, second),)),)))
            end = second.extent[1]
        tensors.append(StoredTensor(name, first.shape, kind, tuple(copies)))
    return EngineLayout("layer", "npu_params", end // 8 + draw(st.integers(0, 5)), tuple(tensors))


def moved(layout: Layout, first_bit: int) -> Layout:
    """The layout, moved so that its extent begins at a bit."""
    base = layout.base + first_bit - layout.extent[0]
    return Layout(layout.shape, base, layout.rows, layout.cols, layout.width)


def one_copy(name: str, layout: Layout, kind: str = "bf16") -> StoredTensor:
    return StoredTensor(name, layout.shape, kind, (Copy("decode", (Plane((Piece(0, 0, layout),)),)),))
