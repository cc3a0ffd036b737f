"""Do rectangles of a tensor fill whole rows, each element once?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from layouts.errors import LayoutError

RowRange = tuple[int, int]


class Rectangle(Protocol):
    """A piece of a plane, or a rectangle of elements that are absent."""

    @property
    def row(self) -> int: ...
    @property
    def col(self) -> int: ...
    @property
    def row_stop(self) -> int: ...
    @property
    def col_stop(self) -> int: ...


def row_ranges(parts: Iterable[Rectangle]) -> tuple[RowRange, ...]:
    """Ascending ranges of rows that rectangles touch, neighbours joined."""
    joined: list[RowRange] = []
    for start, stop in sorted({(part.row, part.row_stop) for part in parts}):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return tuple(joined)


def check_tiling(parts: Sequence[Rectangle], where: str | None = None) -> None:
    """That between any two row cuts the rectangles stand side by side and fill all columns.

    Raises LayoutError naming the first element that is held twice or not at all.
    """
    cols = max(part.col_stop for part in parts)
    cuts = sorted({cut for part in parts for cut in (part.row, part.row_stop)})
    starting: dict[int, list[Rectangle]] = {}
    for part in parts:
        starting.setdefault(part.row, []).append(part)
    active: list[Rectangle] = []
    for cut in cuts:
        active = [part for part in active if part.row_stop > cut] + starting.get(cut, [])
        edge = 0
        for part in sorted(active, key=lambda p: p.col):
            if part.col != edge:
                reason = "pieces of one plane overlap" if part.col < edge else "pieces leave columns out"
                raise LayoutError(reason, where=_at(where, cut, min(edge, part.col)))
            edge = part.col_stop
        if active and edge != cols:
            raise LayoutError("pieces leave columns out", where=_at(where, cut, edge))


def _at(where: str | None, row: int, col: int) -> str:
    return f"{where}: [{row}, {col}]" if where else f"[{row}, {col}]"
