"""Sheet upon sheet of one plane, and of the plane beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from layouts.anchors.claims import Claims
from layouts.anchors.forms import integer_arrangements
from layouts.anchors.holes import fill
from layouts.anchors.lines import LEAST_SUPPORT, MAX_COPIES, MOST_TAKEN, Seam, Sheets, extend_sheets, no_sheets
from layouts.anchors.merge import merge_kinds
from layouts.anchors.pick import Form
from layouts.anchors.scan import Bytes, Fields, Window
from layouts.digits import Int64
from layouts.smooth import UNKNOWN

SECOND_COVERED = 0.7
MAX_LAYERS, ROUNDS, SAMPLED = 6, 6, 64
CHUNK = 1 << 20


def seam_of(fields: Fields, form: Form, window: Window, claims: Claims) -> Seam:
    """A plane of a tensor whose neighbours in memory are of one row, or of one column."""
    lines = fields if form.by_rows else np.ascontiguousarray(fields.T)
    return Seam(lines.shape[0], lines.shape[1], window, lambda which: lines[which], claims)


def find_layers(blob: Bytes, seam: Seam) -> list[Sheets]:
    """Sheet upon sheet, each of what no earlier one owns: further copies, and parts that are laid out in another way."""
    layers: list[Sheets] = []
    for _ in range(MAX_LAYERS):
        before = seam.claims.copy()
        sheets = _layer(blob, seam, None)
        if not sheets.profiles or (layers and _support(sheets) < LEAST_SUPPORT * seam.lines * seam.length):
            seam.claims.become(before)
            break
        layers.append(sheets)
    return layers


def _layer(blob: Bytes, seam: Seam, first: Sheets | None) -> Sheets:
    """One sheet after the other for lines that have no place yet; what regularity tells comes before what else may be found.

    Parameters
    ----------
    first : the same lines of the plane beside this one
    """
    before, sheets = seam.claims.copy(), no_sheets(seam)
    for _ in range(ROUNDS):
        if not extend_sheets(blob, seam, sheets):
            break
        if first is not None:
            _as_often(first, sheets)
        seam.claims.become(before.copy())
        _release(seam, sheets)
        fill(blob, seam, sheets, last=False)
        merge_kinds(blob, seam, sheets)
        _take(seam, sheets)
    if sheets.profiles:
        fill(blob, seam, sheets, last=True)
        _take(seam, sheets)
    return sheets


def _release(seam: Seam, sheets: Sheets) -> None:
    """Forget elements that a profile puts where something else stands."""
    for kind, profile in enumerate(sheets.profiles):
        known = np.flatnonzero(profile != UNKNOWN)
        bases = sheets.base[(sheets.kind == kind) & (sheets.base != UNKNOWN)][:SAMPLED]
        if not bases.size or not known.size:
            continue
        taken = seam.claims.taken(bases[:, None] + profile[known]).mean(axis=0) > MOST_TAKEN
        sheets.profiles[kind] = profile.copy()
        sheets.profiles[kind][known[taken]] = UNKNOWN


def _support(sheets: Sheets) -> int:
    """Elements that were found."""
    known = np.array([np.count_nonzero(profile != UNKNOWN) for profile in sheets.profiles])
    return int((known[sheets.kind] * (sheets.base != UNKNOWN)).sum())


def _take(seam: Seam, sheets: Sheets) -> None:
    """Own what was filled in, too."""
    for kind, profile in enumerate(sheets.profiles):
        offsets = profile[profile != UNKNOWN]
        for copy in range(MAX_COPIES):
            lines = np.flatnonzero((sheets.kind[:, copy] == kind) & (sheets.base[:, copy] != UNKNOWN))
            step = max(1, CHUNK // max(1, len(offsets)))
            for start in range(0, len(lines), step):
                bases = sheets.base[lines[start : start + step], copy]
                seam.claims.take(bases[:, None] + offsets, seam.window.width)


def second_plane(
    blob: Bytes, raw: Fields, form: Form, first: list[Sheets], claims: Claims
) -> tuple[Form, list[Sheets]] | None:
    """The other plane: its bias is the one under which more is found."""
    best: tuple[int, Form, list[Sheets], Claims] | None = None
    known = np.stack([profile != UNKNOWN for sheets in first for profile in sheets.profiles]).any(axis=0)
    for arrangement in integer_arrangements(form.arrangement.codec):
        if len(arrangement.planes) != 2 or arrangement.high_first != form.arrangement.high_first:
            continue
        tried = claims.copy()
        seam = seam_of(arrangement.fields(raw, 1), form, arrangement.window(1), tried)
        seam = replace(seam, stored=np.asarray(known), covered=SECOND_COVERED)
        layers = _second_layers(blob, seam, first)
        lines = sum(int(np.count_nonzero(sheets.copies)) for sheets in layers)
        if lines and (best is None or lines > best[0]):
            best = lines, replace(form, arrangement=arrangement), layers, tried
    if best is None:
        return None
    claims.become(best[3])
    return best[1], best[2]


def _second_layers(blob: Bytes, seam: Seam, first: list[Sheets]) -> list[Sheets]:
    layers: list[Sheets] = []
    for beside in first:
        sheets = _layer(blob, seam, beside)
        if not sheets.profiles:
            break
        layers.append(sheets)
    return layers


def _as_often(first: Sheets, second: Sheets) -> None:
    """Fields that say little are found too often: a line keeps as many places as the first plane has, the most regular."""
    apart = np.where(second.base != UNKNOWN, second.base - first.base[:, :1], UNKNOWN)
    _, inverse, counts = np.unique(apart, return_inverse=True, return_counts=True)
    popular = np.where(apart == UNKNOWN, -1, counts[inverse.reshape(apart.shape)])
    _reorder(second, np.argsort(-popular, axis=1, kind="stable"))
    beyond = np.arange(second.base.shape[1]) >= np.maximum(first.copies, 1)[:, None]
    second.base[beyond] = UNKNOWN
    last = np.where(second.base == UNKNOWN, np.iinfo(np.int64).max, second.base)
    _reorder(second, np.argsort(last, axis=1, kind="stable"))


def _reorder(sheets: Sheets, order: Int64) -> None:
    sheets.base = np.take_along_axis(sheets.base, order, axis=1)
    sheets.kind = np.take_along_axis(sheets.kind, order, axis=1)
