"""Bytes of two files that differ although no tensor owns them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from layouts.stored import EngineLayout
from pipeline.refit.outside import CHUNK, owned_bits, read_part

WEIGHTS = "weights"


@dataclass(frozen=True)
class Region:
    """A part of both files: where it starts in each, and how many bytes each has of it."""

    name: str
    starts: tuple[int, int]
    sizes: tuple[int, int]


@dataclass(frozen=True)
class ByteRange:
    """Consecutive bytes that differ: where in each file, and how many."""

    region: str
    a: int
    b: int
    bytes: int


@dataclass
class StrayBytes:
    """Ranges that differ, ascending, and the regions whose sizes differ, which were compared as far as both reach."""

    ranges: list[ByteRange] = field(default_factory=list)
    sizes: list[Region] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return bool(self.ranges or self.sizes)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.ranges)


def compare_regions(a: Path, b: Path, regions: list[Region], layout: EngineLayout | None) -> StrayBytes:
    """Compare two files region by region; what the layout owns of the region `weights` is left out."""
    found = StrayBytes(sizes=[region for region in regions if region.sizes[0] != region.sizes[1]])
    with a.open("rb") as old, b.open("rb") as new:
        for region in regions:
            owner = layout if region.name == WEIGHTS else None
            for start, stop in _runs(old.fileno(), new.fileno(), region, owner):
                at = region.starts[0] + start, region.starts[1] + start
                found.ranges.append(ByteRange(region.name, *at, stop - start))
    return found


def _runs(a: int, b: int, region: Region, layout: EngineLayout | None) -> Iterator[tuple[int, int]]:
    """First byte and end of each run, counted from the region's start."""
    open_run: tuple[int, int] | None = None
    for at in range(0, min(region.sizes), CHUNK):
        count = min(CHUNK, min(region.sizes) - at)
        old, new = (read_part(file, start + at)[:count] for file, start in zip((a, b), region.starts, strict=True))
        differs = old ^ new
        if layout is not None:
            differs = differs & ~owned_bits(layout, at, count)
        for start, stop in _edges(differs != 0, at):
            if open_run is not None and open_run[1] == start:
                open_run = (open_run[0], stop)
                continue
            if open_run is not None:
                yield open_run
            open_run = (start, stop)
    if open_run is not None:
        yield open_run


def _edges(differs: np.ndarray[tuple[int], np.dtype[np.bool_]], at: int) -> list[tuple[int, int]]:
    padded = np.concatenate(([False], differs, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1]) + at
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]
