"""Places of every element of one tensor under a form, plane by plane, and how many of them hold what is expected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from layouts.anchors.forms import float_raw, integer_arrangements, integer_rules, integers
from layouts.anchors.holes import fill
from layouts.anchors.lines import Claims, Seam, Sheets, find_sheets
from layouts.anchors.pick import Form, Weight
from layouts.anchors.scan import Bytes, Fields, Window, read_fields
from layouts.anchors.sheet_pieces import Pieces, pieces_of
from layouts.codecs import Float32
from layouts.digits import Int64
from layouts.errors import LayoutError
from layouts.integers import integer_codec
from layouts.smooth import UNKNOWN

SECOND_COVERED = 0.7
RULE_ROWS = 64
CHUNK = 1 << 20


@dataclass
class Counts:
    """Elements of a tensor: stored at least once, dropped by the compiler, one step off, anything else."""

    stored: int = 0
    absent: int = 0
    corrected: int = 0
    unexplained: int = 0


@dataclass
class Placed:
    """A tensor whose elements were found; `planes` holds the pieces of every copy of every plane."""

    weight: Weight
    form: Form
    planes: list[list[Pieces]]
    counts: Counts
    raw: Fields

    @property
    def matrix(self) -> Float32:
        return self.weight.matrix(self.form.order, self.form.folded)


def place(blob: Bytes, weight: Weight, form: Form, claims: Claims) -> Placed | None:
    """Find every element, None where a plane is nowhere. Raises FitRefused, DecodeRefused."""
    matrix = weight.matrix(form.order, form.folded)
    raw = _raw(matrix, form)
    fields = form.arrangement.fields(raw, 0)
    seam = _seam(fields, form, form.window, claims)
    sheets = find_sheets(blob, seam)
    if not sheets.profiles:
        return None
    fill(blob, seam, sheets)
    all_sheets = [sheets]
    if len(form.arrangement.planes) > 1:
        found = _second(blob, raw, form, sheets, claims)
        if found is None:
            return None
        form, second = found
        all_sheets.append(second)
    form, raw = _settle_rule(blob, matrix, form, raw, all_sheets)
    counts = _count(blob, form, raw, all_sheets)
    planes = [pieces_of(each, form.arrangement.window(i), not form.by_rows) for i, each in enumerate(all_sheets)]
    return Placed(weight, form, planes, counts, raw)


def _raw(matrix: Float32, form: Form) -> Fields:
    name = form.arrangement.codec
    if form.rule is None:
        return float_raw(matrix, name)
    return integer_codec(name).to_raw(integers(matrix, form.rule, name))


def _seam(fields: Fields, form: Form, window: Window, claims: Claims) -> Seam:
    lines = fields if form.by_rows else np.ascontiguousarray(fields.T)
    return Seam(lines.shape[0], lines.shape[1], window, lambda which: lines[which], claims)


def _second(blob: Bytes, raw: Fields, form: Form, first: Sheets, claims: Claims) -> tuple[Form, Sheets] | None:
    """The other plane: its bias is the one under which more is found."""
    best: tuple[int, Form, Sheets] | None = None
    for arrangement in integer_arrangements(form.arrangement.codec):
        if len(arrangement.planes) != 2 or arrangement.high_first != form.arrangement.high_first:
            continue
        tried = replace(form, arrangement=arrangement)
        seam = _seam(arrangement.fields(raw, 1), form, arrangement.window(1), claims)
        known = np.stack([profile != UNKNOWN for profile in first.profiles]).any(axis=0)
        seam = replace(seam, stored=known, covered=SECOND_COVERED)
        sheets = find_sheets(blob, seam)
        _as_often(first, sheets)
        fill(blob, seam, sheets)
        lines = int(np.count_nonzero(sheets.copies))
        if lines and (best is None or lines > best[0]):
            best = lines, tried, sheets
    return None if best is None else best[1:]


def _as_often(first: Sheets, second: Sheets) -> None:
    """Fields that say little are found too often: a line keeps as many places as the first plane has, the most regular."""
    if not second.profiles:
        return
    apart = np.where(second.base != UNKNOWN, second.base - first.base[:, :1], UNKNOWN)
    values, inverse, counts = np.unique(apart, return_inverse=True, return_counts=True)
    popular = np.where(apart == UNKNOWN, -1, counts[inverse.reshape(apart.shape)])
    order = np.argsort(-popular, axis=1, kind="stable")
    for name in ("base", "kind"):
        setattr(second, name, np.take_along_axis(getattr(second, name), order, axis=1))
    beyond = np.arange(second.base.shape[1]) >= np.maximum(first.copies, 1)[:, None]
    second.base[beyond] = UNKNOWN
    order = np.argsort(np.where(second.base == UNKNOWN, np.iinfo(np.int64).max, second.base), axis=1, kind="stable")
    for name in ("base", "kind"):
        setattr(second, name, np.take_along_axis(getattr(second, name), order, axis=1))


def _settle_rule(blob: Bytes, matrix: Float32, form: Form, raw: Fields, sheets: list[Sheets]) -> tuple[Form, Fields]:
    """The rule under which the fewest integers of some rows differ from what stands at their places."""
    if form.rule is None:
        return form, raw
    rows = np.unique(np.linspace(0, len(matrix) - 1, min(len(matrix), RULE_ROWS)).astype(np.int64))
    kind, name = integer_codec(form.arrangement.codec), form.arrangement.codec
    best: tuple[int, Form] | None = None
    found, there = stored_integers(blob, form, sheets, raw.shape, rows)
    for rule in (form.rule, *integer_rules(name, matrix.shape[1])):
        try:
            wrong = int(np.count_nonzero((kind.to_raw(integers(matrix[rows], rule, name)) != found) & there))
        except LayoutError:
            continue
        if best is None or wrong < best[0]:
            best = wrong, replace(form, rule=rule)
    if best is None or best[1].rule == form.rule:
        return form, raw
    return best[1], _raw(matrix, best[1])


def stored_integers(
    blob: Bytes, form: Form, sheets: list[Sheets], shape: tuple[int, ...], rows: Int64, copy: int = 0
) -> tuple[Fields, Fields]:
    """Stored integers of rows, and which elements are stored in that copy, `[rows, cols]`."""
    total = np.zeros((len(rows), shape[1]), np.int64)
    there = np.ones(total.shape, np.bool_)
    for plane, each in enumerate(sheets):
        low, bits, bias = form.arrangement.planes[plane]
        at = _addresses(each, form, rows, copy)
        there &= at != UNKNOWN
        field = read_fields(blob, np.where(at == UNKNOWN, 0, at), form.arrangement.window(plane))
        total |= ((field - bias) & ((1 << bits) - 1)) << low
    return total, there


def _addresses(sheets: Sheets, form: Form, rows: Int64, copy: int) -> Int64:
    lines = rows if form.by_rows else np.arange(len(sheets.base))
    base, profiles = sheets.base[lines, copy], np.stack(sheets.profiles)
    profile = profiles[sheets.kind[lines, copy]]
    if not form.by_rows:
        profile = profile[:, rows]
    at = np.where((profile == UNKNOWN) | (base == UNKNOWN)[:, None], UNKNOWN, base[:, None] + profile)
    return at if form.by_rows else at.T


def _count(blob: Bytes, form: Form, raw: Fields, sheets: list[Sheets]) -> Counts:
    counts, bits = Counts(), sum(plane[1] for plane in form.arrangement.planes)
    copies = max(1, int(sheets[0].copies.max()))
    step = max(1, CHUNK // raw.shape[1])
    for start in range(0, len(raw), step):
        rows = np.arange(start, min(start + step, len(raw)))
        stored = np.zeros((len(rows), raw.shape[1]), np.bool_)
        off, wrong = np.zeros_like(stored), np.zeros_like(stored)
        for copy in range(copies):
            found, there = stored_integers(blob, form, sheets, raw.shape, rows, copy)
            apart = (found - raw[rows].astype(np.int64)) & ((1 << bits) - 1)
            near = (form.rule is not None) & ((apart == 1) | (apart == (1 << bits) - 1))
            stored |= there
            off |= there & near
            wrong |= there & (apart != 0) & ~near
        counts.stored += int(np.count_nonzero(stored))
        counts.absent += int(np.count_nonzero(~stored))
        counts.corrected += int(np.count_nonzero(off & ~wrong))
        counts.unexplained += int(np.count_nonzero(wrong))
    return counts
