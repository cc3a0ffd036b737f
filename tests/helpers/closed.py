"""Tensors as closed compilers store them: absent elements, bias entries, fp32 scale entries, axes in any order."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from layouts.algebra import Piece
from layouts.bias import BIAS_ENTRIES, Bias
from layouts.compare import ReadWeight
from layouts.copies import Copy, Plane, Rect
from layouts.scales import Scales
from layouts.stored import EngineLayout, StoredTensor, from_matrix, to_matrix
from tests.helpers.integers import planes_of
from tests.helpers.layouts import moved

PLANES = {"s8": ([(8, 0, 0)], [(4, 0, 0), (4, 4, 8)]), "s4": ([(4, 0, 8)],), "fp32": ([(32, 0, 0)],)}
"""Ways to store a codec: width, low bit and bias of each plane."""

FACTORS = st.floats(2.0**-20, 10, width=32)

Arrays = dict[str, npt.NDArray[np.float32]]


class _Blob:
    """Hands out free bits, one range after the other."""

    def __init__(self) -> None:
        self.end = 0

    def place(self, draw: st.DrawFn, at: tuple[int, int], shape: tuple[int, int], width: int) -> Piece:
        start = self.end if width == 4 else -(-self.end // 8) * 8
        layout = moved(draw(planes_of(shape, width)), start)
        self.end = layout.extent[1] + draw(st.sampled_from([0, 0, 8]))
        return Piece(*at, layout)


@st.composite
def closed_tensors(draw: st.DrawFn, name: str, blob: _Blob, codec: str | None = None) -> StoredTensor:
    """A tensor of one or two copies."""
    codec = codec or draw(st.sampled_from(sorted(PLANES)))
    dims = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    order = tuple(draw(st.permutations(range(len(dims)))))
    shape = (dims[order[0]], prod(dims) // dims[order[0]])
    scales = None if codec == "fp32" else draw(rules(codec, shape[1]))
    bias = None if scales is None else draw(st.none() | biases(name))
    absent = {(i, j) for i in range(3) for j in range(1, 3) if draw(st.integers(0, 3)) == 0}
    cuts = [sorted({0, *(draw(st.integers(0, n)) for _ in range(2 + axis)), n}) for axis, n in enumerate(shape)]
    ranges = [(0, shape[0])]
    if draw(st.booleans()):
        start = draw(st.integers(0, shape[0] - 1))
        ranges.append((start, draw(st.integers(start + 1, shape[0]))))
    copies = []
    for copy, rows in zip(("decode", "prefill"), ranges, strict=False):
        drawn = _Drawn(draw, blob, codec, absent, (cuts[0], cuts[1]))
        copies.append(drawn.copy(copy, rows, scales, bias, shape[1]))
    return StoredTensor(name, shape, codec, tuple(copies), scales, "", bias, dims, order)


class _Drawn:
    """One copy after the other over one grid of cells, some of which are absent."""

    def __init__(
        self,
        draw: st.DrawFn,
        blob: _Blob,
        codec: str,
        absent: set[tuple[int, int]],
        cuts: tuple[list[int], list[int]],
    ) -> None:
        self.draw, self.blob, self.codec, self.cuts = draw, blob, codec, cuts
        self.absent = absent

    def copy(self, name: str, rows: tuple[int, int], scales: Scales | None, bias: Bias | None, cols: int) -> Copy:
        held, dropped = self._cells(rows)
        planes = []
        for width, low_bit, plus in self.draw(st.sampled_from(PLANES[self.codec])):
            pieces = [self.blob.place(self.draw, (r.row, r.col), (r.rows, r.cols), width) for r in held]
            planes.append(Plane(tuple(pieces), low_bit, 0, plus))
        count = rows[1] - rows[0]
        places = []
        for there, width, groups in (
            (scales is not None, 32 if scales and scales.entry == "fp32" else 16, scales.groups(cols) if scales else 0),
            (bias is not None, 32, 1),
        ):
            piece = self.blob.place(self.draw, (rows[0], 0), (count, groups), width) if there else None
            places.append(None if piece is None else Plane((piece,)))
        return Copy(name, tuple(planes), places[0], places[1], tuple(dropped))

    def _cells(self, rows: tuple[int, int]) -> tuple[list[Rect], list[Rect]]:
        """The rectangles that are held and those that are not."""
        held, dropped = [], []
        for i, (top, bottom) in enumerate(pairwise(self.cuts[0])):
            for j, (left, right) in enumerate(pairwise(self.cuts[1])):
                first, stop = max(top, rows[0]), min(bottom, rows[1])
                if first < stop:
                    rect = Rect(first, left, stop - first, right - left)
                    (dropped if (i, j) in self.absent else held).append(rect)
        return held, dropped


@st.composite
def rules(draw: st.DrawFn, codec: str, cols: int) -> Scales:
    """Scales of one entry a row."""
    divisor = {"s8": 127.5, "s4": 7.0}[codec]
    if draw(st.booleans()):
        return Scales("bf16", cols, divisor, draw(st.booleans()))
    factor = draw(FACTORS)
    return Scales("fp32", cols, divisor, draw(st.booleans()), factor, draw(st.sampled_from([1.0, 1e-10])))


@st.composite
def biases(draw: st.DrawFn, name: str) -> Bias:
    tensor = draw(st.sampled_from(["", f"{name}.bias"]))
    return Bias(
        tensor, draw(st.sampled_from(BIAS_ENTRIES)), draw(FACTORS), draw(st.sampled_from([0, 0, 3, -128, 28598]))
    )


@st.composite
def closed_engines(draw: st.DrawFn) -> EngineLayout:
    """One to three tensors; every copy lacks what the first one lacks."""
    blob, tensors = _Blob(), []
    for name in ("stft.basis", "a::b/c", "w")[: draw(st.integers(1, 3))]:
        tensors.append(draw(closed_tensors(name, blob)))
    outside = draw(st.sampled_from(["", "0123456789abcdef" * 4]))
    return EngineLayout("model", "first..last", blob.end // 8 + 1, tuple(tensors), 7, outside)


def arrays_of(engine: EngineLayout, seed: int) -> Arrays:
    """Random weights and biases, in the shape of the source; some rows are zeros and have no bias."""
    noise, arrays = np.random.default_rng(seed), Arrays()
    for stored in engine.tensors:
        arrays[stored.name] = noise.normal(size=stored.source_shape).astype(np.float32)
        matrix, empty = to_matrix(stored, arrays[stored.name]).copy(), noise.random(stored.shape[0]) < 0.1
        matrix[empty] = 0
        arrays[stored.name] = from_matrix(stored, matrix)
        if stored.bias is not None and stored.bias.tensor:
            arrays[stored.bias.tensor] = np.where(empty, 0, noise.normal(size=len(empty))).astype(np.float32)
    return arrays


def reader(engine: EngineLayout, arrays: Arrays) -> ReadWeight:
    """The weights as layouts ask for them."""

    def known(name: str, rows: slice) -> npt.NDArray[np.float32]:
        if name in engine.names():
            return to_matrix(engine[name], arrays[name])[rows]
        return arrays[name][None][rows]

    return known
