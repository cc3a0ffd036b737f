"""From lines and profiles to pieces of copies, in rows and columns of the matrix."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layouts.algebra import Layout, Piece
from layouts.anchors.lines import Sheets
from layouts.anchors.scan import Window
from layouts.digits import Int64
from layouts.errors import FitRefused
from layouts.row_places import RowPlaces, copies_of, deduplicated
from layouts.smooth import UNKNOWN

Pieces = tuple[Piece, ...]

MAX_SEGMENTS = 96


def pieces_of(sheets: Sheets, window: Window, transposed: bool) -> list[Pieces]:
    """Pieces of every copy, the complete one first; `transposed` where lines are columns.

    Raises FitRefused where no layouts of bounded size say the same, DecodeRefused for too many runs of copied lines.
    """
    copies: list[list[Piece]] = []
    used = np.unique(sheets.kind[sheets.base != UNKNOWN])
    segments = _segments([sheets.profiles[kind] for kind in used])
    if len(segments) > MAX_SEGMENTS:
        raise FitRefused("no layout of bounded size fits", expected=f"at most {MAX_SEGMENTS} runs", found=len(segments))
    for left, right in segments:
        for index, pieces in enumerate(_segment(sheets, window, left, right)):
            if index == len(copies):
                copies.append([])
            copies[index] += [Piece(piece.row, piece.col + left, piece.layout) for piece in pieces]
    return [tuple(_turned(piece) if transposed else piece for piece in copy) for copy in copies]


def _segments(profiles: list[Int64]) -> list[tuple[int, int]]:
    """Ranges of elements that the same profiles know."""
    known = np.stack([profile != UNKNOWN for profile in profiles])
    cuts = np.flatnonzero((known[:, 1:] != known[:, :-1]).any(axis=0)) + 1
    edges = [0, *(int(cut) for cut in cuts), known.shape[1]]
    return [(left, right) for left, right in pairwise(edges) if known[:, left].any()]


def _segment(sheets: Sheets, window: Window, left: int, right: int) -> list[Pieces]:
    parts = [_part(profile, left, right) for profile in sheets.profiles]
    places = [_places(sheets, window, parts, copy) for copy in range(sheets.base.shape[1])]
    stored = [place for place in places if (place.base >= 0).any()]
    if not stored:
        return []
    second = stored[1] if len(stored) > 1 else None
    extra = [place.pieces(window.width, 1) for place in stored[2:]]
    return [*copies_of(stored[0], second, window.width, 1), *extra]


def _part(profile: Int64, left: int, right: int) -> Int64 | None:
    """Some elements of a profile, None where it does not know them."""
    return None if profile[left] == UNKNOWN else profile[left:right]


def _places(sheets: Sheets, window: Window, parts: list[Int64 | None], copy: int) -> RowPlaces:
    base = np.full(len(sheets.base), -1, np.int64)
    length = next(len(part) for part in parts if part is not None)
    profiles = []
    for kind, part in enumerate(parts):
        profiles.append(np.zeros(length, np.int64) if part is None else part - part[0])
        own = np.flatnonzero((sheets.kind[:, copy] == kind) & (sheets.base[:, copy] != UNKNOWN))
        if part is None or not own.size:
            continue
        base[own] = sheets.base[own, copy] + part[0]
        if window.high_first:
            parity = int(base[own[0]]) & 4
            profiles[-1] = ((profiles[-1] + parity) ^ 4) - (parity ^ 4)
            base[own] ^= 4
    return deduplicated(base, sheets.kind[:, copy].copy(), profiles)


def _turned(piece: Piece) -> Piece:
    layout = piece.layout
    turned = Layout((layout.shape[1], layout.shape[0]), layout.base, layout.cols, layout.rows, layout.width)
    return Piece(piece.col, piece.row, turned)
