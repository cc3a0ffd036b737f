"""Do layouts share a bit? Extents first; a bitmap only where extents cross."""

from __future__ import annotations

from math import gcd

import numpy as np

from layouts.algebra import Layout
from layouts.errors import LayoutError
from layouts.strided import box_views

MAX_CELLS = 1 << 30

Owned = tuple[str, Layout]


def check_no_overlap(owned: list[Owned]) -> None:
    """Refuse two layouts that own the same bit.

    Parameters
    ----------
    owned : tensor name and layout of every piece

    Raises
    ------
    LayoutError : an overlap, naming both tensors; or pieces interleaved over more than 2**30 cells.
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
    cells = (high - low) // unit
    if cells > MAX_CELLS:
        raise LayoutError("pieces interleaved too widely to check", where=cluster[0][0], found=f"{cells} cells")
    owner = np.zeros(cells, np.uint8)
    for index, (name, layout) in enumerate(cluster):
        moved = Layout(layout.shape, layout.base - low, layout.rows, layout.cols, layout.width)
        for _, _, view in box_views(owner, moved, 0, moved.shape[0], unit):
            if view.any():
                others = sorted({other for other, _ in cluster[:index]})
                raise LayoutError("two elements in one place", where=name, found=f"bits of {' or '.join(others)}")
            view[...] = 1


def _grain(layout: Layout, low: int) -> tuple[int, ...]:
    return (layout.base - low, layout.width, *(d.stride for d in (*layout.rows, *layout.cols)))
