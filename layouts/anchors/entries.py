"""Where the scale entries of placed integers stand: words that are known, in sequences of rows, one for each group of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from layouts.algebra import Piece
from layouts.anchors.claims import Claims
from layouts.anchors.regular import regular_entries
from layouts.anchors.scan import Bytes, Fields
from layouts.anchors.sheet_pieces import Pieces
from layouts.anchors.sparse import SparseWords
from layouts.digits import Int64
from layouts.fit import fit
from layouts.smooth import UNKNOWN, smooth

WINDOWS = (16, 8, 4, 3, 2, 1)
MAX_STEP = 32
NEAR_SPAN = 1 << 12
MIN_BACKED, FEW_VALUES = 8, 12
MOST_PLACES = 1 << 20


Span = tuple[int, int]
"""First byte, and the one behind the last."""


def place_entries(
    blob: Bytes,
    raw: Fields,
    planes: list[list[Pieces]],
    claims: Claims,
    groups: Sequence[int],
    near: int = 0,
) -> tuple[int, list[Pieces]] | None:
    """Pieces of the entries of every copy.

    Parameters
    ----------
    raw : expected entries, uint16 or uint32 `[rows, groups]`; one column for entries that are equal for all groups of a row
    planes : of each plane of the integers the pieces of every copy; entries near them are preferred
    groups : how many a row may have, the likeliest first
    near : how far an entry may be from what is expected

    Returns
    -------
    groups of a row, and the pieces of each copy; None where they are nowhere. Raises FitRefused.
    """
    size, lines = raw.dtype.itemsize, np.ascontiguousarray(raw.T).astype(np.int64)
    words = SparseWords(blob, np.unique(lines), 8 * size, near)
    for count in groups:
        tried, found = claims.copy(), []
        wide = np.repeat(raw, count, axis=1) if raw.shape[1] == 1 else raw
        for pieces in zip(*planes, strict=True):
            free = words.free(tried)
            own = regular_entries(free, wide.astype(np.int64), pieces, size, tried)
            own = own or _irregular(free, lines, pieces, size, count, tried)
            if own is None:
                break
            found.append(own)
        else:
            claims.become(tried)
            return count, found
    return None


def _irregular(
    words: SparseWords, lines: Int64, pieces: Sequence[Pieces], size: int, count: int, claims: Claims
) -> Pieces | None:
    """Entries of one copy by sequences of rows."""
    held = np.zeros(lines.shape[1], np.bool_)
    for piece in pieces[0]:
        held[piece.row : piece.row_stop] = True
    shared = len(lines) == 1
    wanted = np.broadcast_to(held * (count if shared else 1), lines.shape).astype(np.int64)
    seen = _search(words, lines, size, wanted, [_span(own) for own in pieces])
    if seen is None:
        return None
    table = np.full((lines.shape[1], count), -1, np.int64)
    edges = np.searchsorted(seen[:, 0] * lines.shape[1] + seen[:, 1], np.arange(lines.size + 1))
    for number in np.flatnonzero(np.diff(edges)):
        line, row = divmod(int(number), lines.shape[1])
        places = 8 * seen[edges[number] : edges[number + 1], 2]
        table[row, slice(None) if shared else line] = places if shared else places[0]
    claims.take(table[table >= 0], 8 * size)
    return _pieces(table, 8 * size)


def _span(pieces: Pieces) -> Span:
    extents = [piece.layout.extent for piece in pieces]
    low, high = min(start for start, _ in extents) // 8, -(-max(stop for _, stop in extents) // 8)
    return low - NEAR_SPAN, high + NEAR_SPAN


def _search(words: SparseWords, lines: Int64, size: int, wanted: Int64, spans: list[Span]) -> Int64 | None:
    """Line, row and byte of every entry, sorted: near the integers if all of them are there, else anywhere.

    Parameters
    ----------
    size : bytes of an entry
    wanted : how often each is stored, `[lines, rows]`
    """
    few = len(np.unique(lines)) < min(FEW_VALUES, lines.size // 4)  # whose sequences say little of a whole blob
    for tried in (words.within(spans), *(() if few else (words,))):
        if wanted.sum() <= len(tried.places) <= MOST_PLACES:
            seen = _told(tried, lines, size, wanted)
            if seen is not None:
                return seen
    return None


def _told(words: SparseWords, lines: Int64, size: int, wanted: Int64) -> Int64 | None:
    """The longest runs of rows first, each of what no longer one has; the rest by regularity."""
    open_times, taken = wanted.copy(), set[int]()
    seen: list[Int64] = []
    for count in WINDOWS:
        if count > lines.shape[1] or (count == 1 and lines.shape[1] > 1) or not open_times.any():
            continue
        runs = [run for step in range(1, MAX_STEP + 1) for run in _runs(words, lines, count, step * size)]
        for run in sorted(runs, key=lambda run: (-run.length, run.step, run.place)):
            seen += _accepted(run, open_times, taken, count)
    found = np.concatenate(seen) if seen else np.zeros((0, 3), np.int64)
    if open_times.any():
        found = _mended(words, lines, found, wanted)
    order = np.lexsort((found[:, 2], found[:, 1], found[:, 0]))
    return found[order] if np.array_equal(_counts(found, lines.shape), wanted) else None


class _Run(NamedTuple):
    """Entries of rows `start:start + length` of a line, from a byte on, `step` bytes apart."""

    line: int
    start: int
    length: int
    place: int
    step: int


def _runs(words: SparseWords, lines: Int64, count: int, step: int) -> Iterator[_Run]:
    """Windows that were found, those that continue each other as one."""
    line, start, place = words.find(lines, count, step)
    diagonal = place - start * step
    order = np.lexsort((start, diagonal, line))
    line, start, diagonal = line[order], start[order], diagonal[order]
    apart = (np.diff(line) != 0) | (np.diff(diagonal) != 0) | (np.diff(start) > count)
    edges = np.concatenate([[0], np.flatnonzero(apart) + 1, [len(line)]]) if len(line) else np.zeros(1, np.int64)
    for first, end in pairwise(edges.tolist()):
        begin = int(start[first])
        length = int(start[end - 1]) + count - begin
        yield _Run(int(line[first]), begin, length, int(diagonal[first]) + begin * step, step)


def _accepted(run: _Run, open_times: Int64, taken: set[int], count: int) -> list[Int64]:
    """What of a run is not told yet, if it is enough."""
    rows = run.start + np.arange(run.length)
    places = run.place + np.arange(run.length) * run.step
    free = (open_times[run.line, rows] > 0) & np.array([int(place) not in taken for place in places])
    if np.count_nonzero(free) < min(count, run.length):
        return []
    rows, places = rows[free], places[free]
    open_times[run.line, rows] -= 1
    taken.update(places.tolist())
    return [np.stack([np.full(len(rows), run.line), rows, places], axis=1)]


def _counts(seen: Int64, shape: tuple[int, ...]) -> Int64:
    return np.bincount(seen[:, 0] * shape[1] + seen[:, 1], minlength=shape[0] * shape[1]).reshape(shape)


def _mended(words: SparseWords, lines: Int64, seen: Int64, wanted: Int64) -> Int64:
    """Rows that were not told apart: the regularity of the others says where their entries stand, in ascending order."""
    order = np.lexsort((seen[:, 2], seen[:, 1], seen[:, 0]))
    seen, found = seen[order], [seen]
    edges = np.searchsorted(seen[:, 0] * lines.shape[1] + seen[:, 1], np.arange(lines.size + 1))
    taken = set(seen[:, 2].tolist())
    for group, rank in product(range(len(lines)), range(int(wanted.max(initial=0)))):
        own = edges[group * lines.shape[1] : (group + 1) * lines.shape[1] + 1]
        has, should = np.diff(own) > rank, wanted[group] > rank
        line = np.full(lines.shape[1], UNKNOWN)
        line[has] = seen[own[:-1][has] + rank, 2]
        if np.count_nonzero(has) < max(MIN_BACKED, lines.shape[1] // 16) or has[should].all():
            continue

        mended = smooth(line, has | ~should, partial(_holds, words, lines[group], taken))
        rows = np.flatnonzero(should & ~has & (mended != UNKNOWN))
        taken |= set(mended[rows].tolist())
        found.append(np.stack([np.full(len(rows), group), rows, mended[rows]], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _holds(words: SparseWords, line: Int64, taken: set[int], row: int, byte: int) -> bool:
    return byte not in taken and words.holds(byte, int(line[row]))


def _pieces(table: Int64, width: int) -> Pieces:
    pieces: list[Piece] = []
    stored = table[:, 0] >= 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], stored, [False]])))
    for start, stop in edges.reshape(-1, 2):
        found = fit(np.ascontiguousarray(table[start:stop]), width)
        pieces += [Piece(int(start) + piece.row, piece.col, piece.layout) for piece in found]
    return tuple(pieces)
