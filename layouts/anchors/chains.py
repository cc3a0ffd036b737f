"""From windows of one line that were found to where the line's elements stand, once for each time that it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from layouts.digits import Int64

MAX_CHAINS, SEEDS, MOST_LEFT_OUT = 4, 6, 48
NOWHERE = np.int64(-1)

Run = tuple[int, int, int]
"""First element, the one behind the last, and the address of element 0 on the run's diagonal."""


def chains(starts: Int64, addresses: Int64, count: int, length: int, step: int, least: float) -> list[Int64]:
    """Follow a line through memory.

    Parameters
    ----------
    starts, addresses : element and bit address of every window that was found
    count : elements of a window
    length, step : elements of the line, bits from one to the next
    least : share of the line that has to be found

    Returns
    -------
    int64 `[length]` bit addresses, -1 where unknown, of each copy
    """
    runs, found = sorted(_runs(starts, addresses, count, step)), []
    for _ in range(MAX_CHAINS):
        path = _path(runs, step)
        line = _line(path, length, step)
        if np.count_nonzero(line >= 0) < max(count, least * length):
            break
        found.append(line)
        taken = set(path)
        runs = [run for run in runs if run not in taken]
    return found


def _runs(starts: Int64, addresses: Int64, count: int, step: int) -> Iterator[Run]:
    """Windows that overlap or touch on one diagonal are one run."""
    diagonal = addresses - starts * step
    order = np.lexsort((starts, diagonal))
    starts, diagonal = starts[order], diagonal[order]
    apart = (np.diff(diagonal) != 0) | (np.diff(starts) > count)
    edges = np.concatenate([[0], np.flatnonzero(apart) + 1, [len(starts)]])
    for first, end in pairwise(edges.tolist()):
        if end > first:
            yield int(starts[first]), int(starts[end - 1]) + count, int(diagonal[first])


def _path(runs: list[Run], step: int) -> list[Run]:
    """The fullest way along the line, of equally full ones the shortest: what goes over from one copy to another is longer."""
    seeds = sorted(runs, key=lambda run: run[0] - run[1])[:SEEDS]
    paths = [_followed(runs, seed, step) for seed in seeds]
    return max(paths, key=lambda path: (sum(run[1] - run[0] for run in path), -_jumped(path)), default=[])


def _jumped(path: list[Run]) -> int:
    return sum(abs(other[2] - run[2]) for run, other in pairwise(sorted(path)))


def _followed(runs: list[Run], seed: Run, step: int) -> list[Run]:
    """Runs from a seed both ways, each the one that begins nearest to where the last one ended."""
    ahead, behind, path = seed, seed, [seed]
    while (found := _next(runs, ahead, step)) is not None:
        ahead = found
        path.append(found)
    while (found := _before(runs, behind, step)) is not None:
        behind = found
        path.append(found)
    return path


def _next(runs: list[Run], run: Run, step: int) -> Run | None:
    open_runs = [other for other in runs if 0 <= other[0] - run[1] <= MOST_LEFT_OUT]
    return min(open_runs, key=lambda other: _cost(other[0] - run[1], other[2] - run[2], step), default=None)


def _before(runs: list[Run], run: Run, step: int) -> Run | None:
    open_runs = [other for other in runs if 0 <= run[0] - other[1] <= MOST_LEFT_OUT]
    return min(open_runs, key=lambda other: _cost(run[0] - other[1], other[2] - run[2], step), default=None)


def _cost(gap: int, jump: int, step: int) -> tuple[int, int]:
    """Few elements left out, then a short jump; a false run is far off."""
    return abs(jump) + 64 * gap * step, gap


def _line(path: list[Run], length: int, step: int) -> Int64:
    line = np.full(length, NOWHERE)
    for first, end, diagonal in path:
        line[first:end] = diagonal + np.arange(first, end) * step
    return line


def consensus(lines: npt.NDArray[np.int64]) -> list[tuple[Int64, Int64, Int64]]:
    """Kinds of lines whose elements stand at the same distances.

    Parameters
    ----------
    lines : `[n, length]` addresses, -1 unknown

    Returns
    -------
    for each kind: its members, the offset of each from the kind's first, and the address of each element in the first by
    what most members say, -1 unknown
    """
    left, kinds = np.arange(len(lines)), []
    while left.size:
        seed = left[int(np.argmax(np.count_nonzero(lines[left] >= 0, axis=1)))]
        both = (lines[left] >= 0) & (lines[seed] >= 0)
        steps = np.where(both, lines[left] - lines[seed], np.iinfo(np.int64).max)
        middle = np.sort(steps, axis=1)[np.arange(len(left)), np.count_nonzero(both, axis=1) // 2]
        agree = np.count_nonzero((steps == middle[:, None]) & both, axis=1)
        alike = (4 * agree >= 3 * np.count_nonzero(both, axis=1)) & (agree > 0)
        alike |= left == seed
        members, offsets = left[alike], np.where(left[alike] == seed, 0, middle[alike])
        kinds.append((members, offsets, _majority(lines[members], offsets)))
        left = left[~alike]
    return kinds


def _majority(lines: npt.NDArray[np.int64], offsets: Int64) -> Int64:
    """The middle one of what members say of each element, where at least half of them agree."""
    known = lines >= 0
    aligned = np.sort(np.where(known, lines - offsets[:, None], np.iinfo(np.int64).max), axis=0)
    valid = np.count_nonzero(known, axis=0)
    middle = aligned[np.minimum(valid // 2, len(lines) - 1), np.arange(lines.shape[1])]
    agree = np.count_nonzero((lines - offsets[:, None] == middle) & known, axis=0)
    return np.where((valid > 0) & (2 * agree > valid), middle, NOWHERE)
