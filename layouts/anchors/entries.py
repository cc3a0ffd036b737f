"""Where the scale entries of placed integers stand: entries that are known exactly, one line for each group of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layouts.algebra import Piece
from layouts.anchors.holes import fill
from layouts.anchors.lines import Claims, Seam, find_sheets
from layouts.anchors.scan import Bytes, Fields, Window, read_fields
from layouts.anchors.sheet_pieces import Pieces, pieces_of
from layouts.digits import Int64
from layouts.fit import fit
from layouts.smooth import UNKNOWN, smooth

STEPS = (1, 2, 3, 4, 8, 16)
MAX_STEP = 24
MIN_BACKED = 8

Held = npt.NDArray[np.bool_]


def place_entries(blob: Bytes, raw: Fields, held: list[Held], claims: Claims) -> list[Pieces] | None:
    """Pieces of the entries of every copy.

    Parameters
    ----------
    raw : expected entries, uint16 or uint32 `[rows, groups]`
    held : which rows each copy holds

    Returns
    -------
    None where they are nowhere. Raises FitRefused.
    """
    width = raw.dtype.itemsize * 8
    for step in dict.fromkeys((*STEPS, raw.shape[1], 2 * raw.shape[1])):
        lines = np.ascontiguousarray(raw.T)
        seam = Seam(lines.shape[0], lines.shape[1], Window(width, width * step), lambda which: lines[which], claims)
        sheets = find_sheets(blob, seam)
        if not sheets.profiles or (sheets.copies < len(held)).any():
            continue
        fill(blob, seam, sheets)
        found = pieces_of(sheets, seam.window, True)[: len(held)]
        if [_rows(pieces, len(raw)).tolist() for pieces in found] == [own.tolist() for own in held]:
            return found
    return None


def _rows(pieces: Pieces, count: int) -> Held:
    rows = np.zeros(count, np.bool_)
    for piece in pieces:
        rows[piece.row : piece.row_stop] = True
    return rows


@dataclass
class _Seen:
    """Rows and bit addresses of entries, sorted by both."""

    row: Int64
    at: Int64


def place_shared(
    blob: Bytes, raw: Fields, held: list[Held], claims: Claims, near: int = 0
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
    for step in range(1, MAX_STEP + 1):
        seen = _seen(blob, raw, Window(width, width * step), near)
        counts = np.bincount(seen.row, minlength=len(raw))
        groups = int(counts[0] // times[0])
        if not groups or not np.array_equal(counts, times * groups):
            mended = _mended(blob, raw, seen, counts, near) if (times == 1).all() else None
            if mended is None:
                continue
            seen, counts, groups = mended, np.ones(len(raw), np.int64), 1
        tables = _tables(seen, counts, held, groups)
        for table in tables:
            claims.take(table[table >= 0], width)
        return groups, [_pieces(table, width) for table in tables]
    return None


def _mended(blob: Bytes, raw: Fields, seen: _Seen, counts: Int64, near: int) -> _Seen | None:
    """Rows that are stored once, where many have one value: the regularity of those that were seen once tells the others."""
    once = counts[seen.row] == 1
    line = np.full(len(raw), UNKNOWN)
    line[seen.row[once]] = seen.at[once]
    backed = line != UNKNOWN
    if np.count_nonzero(backed) < max(MIN_BACKED, len(raw) // 16):
        return None
    word = Window(raw.dtype.itemsize * 8, raw.dtype.itemsize * 8)

    def holds(row: int, at: int) -> bool:
        return bool(abs(int(read_fields(blob, np.array([at]), word)[0]) - int(raw[row])) <= near)

    line = smooth(line, backed, holds)
    if (line == UNKNOWN).any() or len(np.unique(line)) < len(line):
        return None
    if not all(holds(row, int(at)) for row, at in enumerate(line)):
        return None
    return _Seen(np.arange(len(raw)), line)


def _tables(seen: _Seen, counts: Int64, held: list[Held], groups: int) -> list[Int64]:
    edges = np.concatenate([[0], np.cumsum(counts)])
    tables = [np.full((len(counts), groups), -1, np.int64) for _ in held]
    for row in range(len(counts)):
        own = seen.at[edges[row] : edges[row + 1]].reshape(-1, groups)
        for copy, places in zip([c for c, rows in enumerate(held) if rows[row]], own, strict=True):
            tables[copy][row] = places
    return tables


def _pieces(table: Int64, width: int) -> Pieces:
    pieces: list[Piece] = []
    stored = table[:, 0] >= 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], stored, [False]])))
    for start, stop in edges.reshape(-1, 2):
        found = fit(np.ascontiguousarray(table[start:stop]), width)
        pieces += [Piece(int(start) + piece.row, piece.col, piece.layout) for piece in found]
    return tuple(pieces)


def _seen(blob: Bytes, values: Fields, window: Window, near: int) -> _Seen:
    """Every place of an entry that is part of a window; the row of a value that several rows have is told by the others."""
    starts = np.arange(len(values) - window.count + 1)
    line = values[None]
    good = np.flatnonzero(window.telling(line, starts))
    index, place = window.find(blob, window.keys(line, starts).ravel()[good])
    start = good[index]
    row = (start[:, None] + np.arange(window.count)).ravel()
    at = (place[:, None] * 8 + np.arange(window.count) * window.step).ravel()
    pairs = np.unique(np.stack([row, at], axis=1), axis=0) if row.size else np.zeros((0, 2), np.int64)
    pairs = _grown(blob, values, window, pairs, near)
    return _Seen(pairs[:, 0], pairs[:, 1])


def _grown(
    blob: Bytes, values: Fields, window: Window, pairs: npt.NDArray[np.int64], near: int
) -> npt.NDArray[np.int64]:
    """The neighbours of what was seen, as far as they hold what is expected."""
    for way in (-1, 1):
        front = pairs
        while front.size:
            moved = front + np.array([way, way * window.step])
            moved = moved[(moved[:, 0] >= 0) & (moved[:, 0] < len(values))]
            found = np.abs(read_fields(blob, moved[:, 1], window) - values[moved[:, 0]].astype(np.int64)) <= near
            known = {(int(r), int(a)) for r, a in pairs}
            front = np.array([pair for pair in moved[found] if (int(pair[0]), int(pair[1])) not in known]).reshape(
                -1, 2
            )
            pairs = np.concatenate([pairs, front]) if front.size else pairs
    order = np.lexsort((pairs[:, 1], pairs[:, 0])) if pairs.size else np.zeros(0, np.int64)
    return pairs[order]
