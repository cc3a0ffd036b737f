"""Where the scale entries of placed integers stand: words that are known, in sequences of rows, one for each group of columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from layouts.algebra import Piece
from layouts.anchors.lines import Claims
from layouts.anchors.scan import Bytes, Fields, Flags
from layouts.anchors.sheet_pieces import Pieces
from layouts.anchors.sparse import SparseWords
from layouts.digits import Int64
from layouts.fit import fit
from layouts.smooth import UNKNOWN, smooth

WINDOWS = (64, 32, 16, 8, 4, 3, 2, 1)
MAX_STEP = 32
NEAR_BYTES = 1 << 16
MIN_BACKED = 8
MOST_PLACES = 1 << 20

Tables = list[Int64]
"""Bit addresses `[rows, groups]` of each copy, -1 in rows that it lacks."""


Span = tuple[int, int]
"""First byte, and the one behind the last."""


def place_entries(
    blob: Bytes, raw: Fields, held: list[Flags], claims: Claims, spans: list[Span]
) -> list[Pieces] | None:
    """Pieces of the entries of every copy.

    Parameters
    ----------
    raw : expected entries, uint16 or uint32 `[rows, groups]`
    held : which rows each copy holds
    spans : where the integers of the copies stand; entries near them are preferred

    Returns
    -------
    None where they are nowhere, or more often than the copies say. Raises FitRefused.
    """
    width, times = raw.dtype.itemsize * 8, np.sum(held, axis=0)
    lines = np.ascontiguousarray(raw.T).astype(np.int64)
    wanted = np.broadcast_to(times, lines.shape)
    words = SparseWords(blob, np.unique(lines), width, 0, claims.taken_bytes())
    seen = _search(words, lines, width, wanted, raw.shape[1], spans)
    if seen is None:
        return None
    tables = [np.full(raw.shape, -1, np.int64) for _ in held]
    edges = _edges(seen, lines.shape)
    for number in range(lines.size):
        group, row = divmod(number, lines.shape[1])
        places = seen[edges[number] : edges[number + 1], 2]
        for copy, place in zip(_copies(held, row), places, strict=True):
            tables[copy][row, group] = 8 * place
    return _fitted(tables, width, claims)


def place_shared(
    blob: Bytes, raw: Fields, held: list[Flags], claims: Claims, spans: list[Span], near: int = 0
) -> tuple[int, list[Pieces]] | None:
    """Entries that are equal for all groups of a row: its places in ascending order are those of its groups, copy by copy.

    Parameters
    ----------
    raw : expected entry of each row
    near : how far an entry may be from what is expected

    Returns
    -------
    groups of a row, and the pieces of each copy; None where a row's places are not as many in every row. Raises FitRefused.
    """
    width, times = raw.dtype.itemsize * 8, np.sum(held, axis=0)
    lines = raw[None].astype(np.int64)
    words = SparseWords(blob, np.unique(lines), width, near, claims.taken_bytes())
    seen = _search(words, lines, width, times[None], 0, spans)
    if seen is None:
        return None
    edges = _edges(seen, lines.shape)
    groups = int((edges[1] - edges[0]) // times[0])
    tables = [np.full((len(raw), groups), -1, np.int64) for _ in held]
    for row in range(len(raw)):
        own = seen[edges[row] : edges[row + 1], 2].reshape(-1, groups)
        for copy, places in zip(_copies(held, row), own, strict=True):
            tables[copy][row] = 8 * places
    return groups, _fitted(tables, width, claims)


def _copies(held: list[Flags], row: int) -> list[int]:
    return [copy for copy, rows in enumerate(held) if rows[row]]


def _edges(seen: Int64, shape: tuple[int, ...]) -> Int64:
    return np.searchsorted(seen[:, 0] * shape[1] + seen[:, 1], np.arange(shape[0] * shape[1] + 1))


def _search(words: SparseWords, lines: Int64, width: int, times: Int64, groups: int, spans: list[Span]) -> Int64 | None:
    """Line, row and byte of every entry, sorted: near the integers if all of them are there, else anywhere."""
    for tried in (words.within(spans), words):
        if 0 < len(tried.places) <= MOST_PLACES:
            seen = _told(tried, lines, width, times, groups)
            if seen is not None:
                return seen
    return None


def _told(words: SparseWords, lines: Int64, width: int, times: Int64, groups: int) -> Int64 | None:
    """Long sequences first, short ones near them, the rest by regularity.

    Parameters
    ----------
    times : how often each entry is stored, `[lines, rows]`
    groups : 0 where an entry stands once for each of an unknown number of groups
    """
    seen, each = np.zeros((0, 3), np.int64), 1 if groups else 0
    for count in WINDOWS:
        if count > lines.shape[1] or (count == 1 and lines.shape[1] > 1):
            continue
        fresh = np.unique(np.concatenate(list(_windows(words, lines, count, width // 8))), axis=0)
        fresh = _beside(fresh, seen) if len(seen) else fresh
        if not len(fresh):
            continue
        counts = _counts(fresh, lines.shape) + _counts(seen, lines.shape)
        each = each or max(1, int(np.median((counts // np.maximum(times, 1))[counts > 0])))
        told = counts == times * each
        seen = np.concatenate([seen, fresh[told[fresh[:, 0], fresh[:, 1]]]])
        if told.all():
            break
    counts = _counts(seen, lines.shape)
    if not np.array_equal(counts, times * each):
        seen = seen[(counts == times * each)[seen[:, 0], seen[:, 1]]]
        seen = _mended(words, lines, seen, times * each)
    counts = _counts(seen, lines.shape)
    order = np.lexsort((seen[:, 2], seen[:, 1], seen[:, 0]))
    return seen[order] if len(seen) and np.array_equal(counts, times * each) else None


def _counts(seen: Int64, shape: tuple[int, ...]) -> Int64:
    return np.bincount(seen[:, 0] * shape[1] + seen[:, 1], minlength=shape[0] * shape[1]).reshape(shape)


def _windows(words: SparseWords, lines: Int64, count: int, size: int) -> Iterator[Int64]:
    for step in range(1, MAX_STEP + 1):
        line, start, place = words.find(lines, count, step * size)
        within = np.arange(count)
        rows = (start[:, None] + within).ravel()
        places = (place[:, None] + within * step * size).ravel()
        yield np.stack([np.repeat(line, count), rows, places], axis=1)


def _beside(fresh: Int64, seen: Int64) -> Int64:
    """What stands near what was seen before, and is not taken."""
    places = np.sort(seen[:, 2])
    index = np.searchsorted(places, fresh[:, 2])
    low, high = places[np.maximum(index - 1, 0)], places[np.minimum(index, len(places) - 1)]
    near = np.minimum(np.abs(fresh[:, 2] - low), np.abs(fresh[:, 2] - high)) <= NEAR_BYTES
    return fresh[near & ~np.isin(fresh[:, 2], places)]


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

        def holds(row: int, byte: int, group: int = group) -> bool:
            return byte not in taken and words.holds(byte, int(lines[group, row]))

        mended = smooth(line, has | ~should, holds)
        rows = np.flatnonzero(should & ~has & (mended != UNKNOWN))
        taken |= set(mended[rows].tolist())
        found.append(np.stack([np.full(len(rows), group), rows, mended[rows]], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _fitted(tables: Tables, width: int, claims: Claims) -> list[Pieces]:
    for table in tables:
        claims.take(table[table >= 0], width)
    return [_pieces(table, width) for table in tables]


def _pieces(table: Int64, width: int) -> Pieces:
    pieces: list[Piece] = []
    stored = table[:, 0] >= 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], stored, [False]])))
    for start, stop in edges.reshape(-1, 2):
        found = fit(np.ascontiguousarray(table[start:stop]), width)
        pieces += [Piece(int(start) + piece.row, piece.col, piece.layout) for piece in found]
    return tuple(pieces)
