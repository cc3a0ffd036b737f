"""Do layouts share a bit? Extents first; where they cross a bitmap if it is small, else a search through the digits."""

from __future__ import annotations

from itertools import product
from math import gcd

import numpy as np

from layouts.algebra import Layout
from layouts.disjoint import Cell, Entangled, Search, cells
from layouts.errors import LayoutError
from layouts.strided import box_views

SMALL_CELLS = 1 << 20
MAX_CELLS = 1 << 28
MAX_STEPS = 100_000
STEPS_PER_PAIR = 10

Owned = tuple[str, Layout]


def check_no_overlap(owned: list[Owned]) -> None:
    """Refuse two layouts that own the same bit.

    Parameters
    ----------
    owned : tensor name and layout of every piece

    Raises
    ------
    LayoutError : an overlap, naming both tensors; or pieces interleaved so that neither a search of 100,000 steps nor 2**28
        cells tell.
    """
    cluster: list[Owned] = []
    end = 0
    for name, layout in sorted(owned, key=lambda item: item[1].extent):
        first, stop = layout.extent
        if cluster and first >= end:
            _check_cluster(cluster)
            cluster = []
        cluster.append((name, layout))
        end = max(end, stop)
    _check_cluster(cluster)


def _check_cluster(cluster: list[Owned]) -> None:
    if len(cluster) < 2:
        return
    low = min(layout.extent[0] for _, layout in cluster)
    high = max(layout.extent[1] for _, layout in cluster)
    unit = gcd(*(bits for _, layout in cluster for bits in _grain(layout, low)))
    count = (high - low) // unit
    if count > SMALL_CELLS:
        try:
            _search(cluster)
        except Entangled:
            if count > MAX_CELLS:
                found = f"{count} cells"
                raise LayoutError("pieces interleaved too widely to check", where=cluster[0][0], found=found) from None
        else:
            return
    _draw(cluster, low, count, unit)


def _draw(cluster: list[Owned], low: int, count: int, unit: int) -> None:
    """One byte for each `unit` bits from bit `low` on."""
    owner = np.zeros(count, np.uint8)
    for index, (name, layout) in enumerate(cluster):
        moved = Layout(layout.shape, layout.base - low, layout.rows, layout.cols, layout.width)
        for _, _, view in box_views(owner, moved, 0, moved.shape[0], unit):
            if view.any():
                raise _shared(name, {other for other, _ in cluster[:index]})
            view[...] = 1


def _search(cluster: list[Owned]) -> None:
    """Every pair whose extents cross, first as if all blocks were whole, then as they are. Raises Entangled."""
    search, extents = Search(MAX_STEPS), [layout.extent for _, layout in cluster]
    for i, (first, a) in enumerate(cluster):
        for j in range(i + 1, len(cluster)):
            if extents[j][0] >= extents[i][1]:
                break
            second, b = cluster[j]
            search.left -= STEPS_PER_PAIR
            if _meet(search, a, b):
                raise _shared(second, {first})


def _meet(search: Search, a: Layout, b: Layout) -> bool:
    widths = (a.width, b.width)
    if not search.meet((a.base, a.rows + a.cols), (b.base, b.rows + b.cols), widths):
        return False
    return any(search.meet(mine, other, widths) for mine, other in product(_cells(a), _cells(b)))


def _cells(layout: Layout) -> list[Cell]:
    return cells(layout.shape, layout.rows, layout.cols, layout.base)


def _shared(name: str, others: set[str]) -> LayoutError:
    return LayoutError("two elements in one place", where=name, found=f"bits of {' or '.join(sorted(others))}")


def _grain(layout: Layout, low: int) -> tuple[int, ...]:
    return (layout.base - low, layout.width, *(d.stride for d in (*layout.rows, *layout.cols)))
