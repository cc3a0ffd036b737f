"""A placed tensor, its scale and bias entries, as a StoredTensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from layouts.anchors.place import Placed
from layouts.anchors.sheet_pieces import Pieces
from layouts.bias import Bias
from layouts.copies import Copy, Plane, Rect
from layouts.errors import LayoutError
from layouts.scales import Scales
from layouts.tensors import StoredTensor


@dataclass(frozen=True)
class Beside:
    """Scale rule, bias, and the places of their entries, one for each copy."""

    scales: Scales | None = None
    scale_copies: list[Pieces] = field(default_factory=list)
    bias: Bias | None = None
    bias_copies: list[Pieces] = field(default_factory=list)


def rows_of(pieces: Pieces, count: int) -> npt.NDArray[np.bool_]:
    """Which rows pieces hold anything of."""
    rows = np.zeros(count, np.bool_)
    for piece in pieces:
        rows[piece.row : piece.row_stop] = True
    return rows


def assemble(found: Placed, beside: Beside, names: Sequence[str]) -> StoredTensor:
    """Raises LayoutError where planes and entries do not make up whole copies."""
    arrangement, shape = found.form.arrangement, (found.raw.shape[0], found.raw.shape[1])
    copies: list[Copy] = []
    for index, name in zip(range(len(found.planes[0])), names, strict=False):
        planes = tuple(
            Plane(copies_of[index], low, bits, bias)
            for copies_of, (low, bits, bias) in zip(found.planes, arrangement.planes, strict=True)
        )
        entries = Plane(beside.scale_copies[index]) if beside.scales is not None else None
        bias = Plane(beside.bias_copies[index]) if beside.bias is not None else None
        absent = absent_rects(planes[0].pieces, shape, complete=index == 0)
        if index and absent and not _within(absent, copies[0].absent):
            reason = f"copy {name} lacks elements that another has: part of it was not found"
            raise LayoutError(reason, where=found.weight.name)
        copies.append(Copy(name, planes, entries, bias, absent))
    dims, order = found.weight.array.shape, found.form.order
    plain = len(dims) == 1 or (len(dims) == 2 and order in ((), (0, 1)))
    return StoredTensor(
        found.weight.name,
        shape,
        arrangement.codec,
        tuple(copies),
        beside.scales,
        found.form.folded,
        beside.bias,
        () if plain else tuple(dims),
        () if plain else order,
    )


def _within(rects: tuple[Rect, ...], others: tuple[Rect, ...]) -> bool:
    """Whether every rectangle lies in one of the others."""
    return all(
        any(
            other.row <= rect.row
            and rect.row_stop <= other.row_stop
            and other.col <= rect.col
            and rect.col_stop <= other.col_stop
            for other in others
        )
        for rect in rects
    )


def absent_rects(pieces: Pieces, shape: tuple[int, int], complete: bool) -> tuple[Rect, ...]:
    """What pieces leave out of the rows that they hold, of all rows where the copy is to be `complete`."""
    if sum(piece.layout.shape[0] * piece.layout.shape[1] for piece in pieces) == shape[0] * shape[1]:
        return ()
    cuts = sorted({0, shape[0], *(cut for piece in pieces for cut in (piece.row, piece.row_stop))})
    bands: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []
    for top, bottom in pairwise(cuts):
        own = [(piece.col, piece.col_stop) for piece in pieces if piece.row <= top and bottom <= piece.row_stop]
        if not own and not complete:
            continue
        gaps = _gaps(sorted(own), shape[1])
        if bands and bands[-1][1] == top and bands[-1][2] == gaps:
            bands[-1] = (bands[-1][0], bottom, gaps)
        else:
            bands.append((top, bottom, gaps))
    return tuple(Rect(top, left, bottom - top, right - left) for top, bottom, gaps in bands for left, right in gaps)


def _gaps(spans: list[tuple[int, int]], cols: int) -> tuple[tuple[int, int], ...]:
    edges, gaps = 0, []
    for left, right in [*spans, (cols, cols)]:
        if left > edges:
            gaps.append((edges, left))
        edges = max(edges, right)
    return tuple(gaps)
