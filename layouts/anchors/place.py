"""Places of every element of one tensor under a form, plane by plane, and how many of them hold what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from layouts.algebra import Piece
from layouts.anchors.forms import Arrangement, float_raw, integer_arrangements, integer_rules, integers
from layouts.anchors.holes import fill
from layouts.anchors.lines import LEAST_SUPPORT, MAX_COPIES, Claims, Seam, Sheets, find_sheets
from layouts.anchors.pick import Form, Weight
from layouts.anchors.scan import Bytes, Fields, Window, read_fields
from layouts.anchors.sheet_pieces import Pieces, pieces_of
from layouts.codecs import Float32
from layouts.copies import Plane
from layouts.digits import Int64
from layouts.errors import FitRefused, LayoutError
from layouts.integers import integer_codec
from layouts.smooth import UNKNOWN

SECOND_COVERED = 0.7
MAX_LAYERS, MAX_PIECES = 6, 512
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
    seam = _seam(form.arrangement.fields(raw, 0), form, form.window, claims)
    first = find_layers(blob, seam)
    if not first:
        return None
    layers = [first]
    if len(form.arrangement.planes) > 1:
        found = _second(blob, raw, form, first, claims)
        if found is None:
            return None
        form, second = found
        layers.append(second)
    planes = [_copies(each, form.arrangement.window(index), not form.by_rows) for index, each in enumerate(layers)]
    form, raw = _settle_rule(blob, matrix, form, raw, planes)
    return Placed(weight, form, planes, _count(blob, form, raw, planes), raw)


def find_layers(blob: Bytes, seam: Seam) -> list[Sheets]:
    """Sheet upon sheet, each of what no earlier one owns: further copies, and parts that are laid out in another way."""
    layers: list[Sheets] = []
    for _ in range(MAX_LAYERS):
        before = seam.claims.copy()
        sheets = find_sheets(blob, seam)
        if not sheets.profiles or (layers and _support(sheets) < LEAST_SUPPORT * seam.lines * seam.length):
            break
        seam.claims.become(before)
        fill(blob, seam, sheets)
        _take(seam, sheets)
        layers.append(sheets)
    return layers


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


def _copies(layers: list[Sheets], window: Window, transposed: bool) -> list[Pieces]:
    """Pieces of all layers as copies: each piece in the first copy that has nothing of its elements yet."""
    copies: list[list[Piece]] = []
    for sheets in layers:
        for piece in (piece for copy in pieces_of(sheets, window, transposed) for piece in copy):
            for own in copies:
                if not any(_overlap(piece, other) for other in own):
                    own.append(piece)
                    break
            else:
                copies.append([piece])
            if sum(map(len, copies)) > MAX_PIECES:
                raise FitRefused(
                    "no layout of bounded size fits", expected=f"at most {MAX_PIECES} pieces", found="more"
                )
    return [tuple(own) for own in copies]


def _overlap(a: Piece, b: Piece) -> bool:
    return a.row < b.row_stop and b.row < a.row_stop and a.col < b.col_stop and b.col < a.col_stop


def _raw(matrix: Float32, form: Form) -> Fields:
    name = form.arrangement.codec
    if form.rule is None:
        return float_raw(matrix, name)
    return integer_codec(name).to_raw(integers(matrix, form.rule, name))


def _seam(fields: Fields, form: Form, window: Window, claims: Claims) -> Seam:
    lines = fields if form.by_rows else np.ascontiguousarray(fields.T)
    return Seam(lines.shape[0], lines.shape[1], window, lambda which: lines[which], claims)


def _second(
    blob: Bytes, raw: Fields, form: Form, first: list[Sheets], claims: Claims
) -> tuple[Form, list[Sheets]] | None:
    """The other plane: its bias is the one under which more is found."""
    best: tuple[int, Form, list[Sheets], Claims] | None = None
    known = np.stack([profile != UNKNOWN for sheets in first for profile in sheets.profiles]).any(axis=0)
    for arrangement in integer_arrangements(form.arrangement.codec):
        if len(arrangement.planes) != 2 or arrangement.high_first != form.arrangement.high_first:
            continue
        tried = claims.copy()
        seam = _seam(arrangement.fields(raw, 1), form, arrangement.window(1), tried)
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
    for sheets_of_first in first:
        before = seam.claims.copy()
        sheets = find_sheets(blob, seam)
        if not sheets.profiles:
            break
        _as_often(sheets_of_first, sheets)
        seam.claims.become(before)
        fill(blob, seam, sheets)
        _take(seam, sheets)
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


def _settle_rule(
    blob: Bytes, matrix: Float32, form: Form, raw: Fields, planes: list[list[Pieces]]
) -> tuple[Form, Fields]:
    """The rule under which the fewest integers of some rows differ from what stands at their places."""
    if form.rule is None:
        return form, raw
    kind, name = integer_codec(form.arrangement.codec), form.arrangement.codec
    best: tuple[int, Form] | None = None
    step = max(1, len(matrix) // RULE_ROWS)
    picked = [row for row in range(0, len(matrix), step)]
    parts = [stored_integers(blob, form.arrangement, planes, 0, (row, row + 1), matrix.shape[1]) for row in picked]
    found, there = (np.concatenate(side) for side in zip(*parts, strict=True))
    for rule in (form.rule, *integer_rules(name, matrix.shape[1])):
        try:
            wrong = int(np.count_nonzero((kind.to_raw(integers(matrix[picked], rule, name)) != found) & there))
        except LayoutError:
            continue
        if best is None or wrong < best[0]:
            best = wrong, replace(form, rule=rule)
    if best is None or best[1].rule == form.rule:
        return form, raw
    return best[1], _raw(matrix, best[1])


def stored_integers(
    blob: Bytes, arrangement: Arrangement, planes: list[list[Pieces]], copy: int, rows: tuple[int, int], cols: int
) -> tuple[Int64, Fields]:
    """Stored integers of a range of rows, and which of its elements are stored in a copy, `[rows, cols]`."""
    shape = (rows[1] - rows[0], cols)
    total, there = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    for index, copies in enumerate(planes):
        low, bits, bias = arrangement.planes[index]
        at = Plane(copies[copy]).addresses(*rows, cols) if copy < len(copies) else np.full(shape, -1, np.int64)
        there &= at >= 0
        field = read_fields(blob, np.maximum(at, 0), replace(arrangement.window(index), high_first=False))
        total |= ((field - bias) & ((1 << bits) - 1)) << low
    return total, there


def _count(blob: Bytes, form: Form, raw: Fields, planes: list[list[Pieces]]) -> Counts:
    counts, bits = Counts(), sum(plane[1] for plane in form.arrangement.planes)
    for rows in _ranges(raw.shape[0], raw.shape[1]):
        shape = (rows[1] - rows[0], raw.shape[1])
        stored, off, wrong = (np.zeros(shape, np.bool_) for _ in range(3))
        for copy in range(max(map(len, planes))):
            found, there = stored_integers(blob, form.arrangement, planes, copy, rows, raw.shape[1])
            apart = (found - raw[rows[0] : rows[1]].astype(np.int64)) & ((1 << bits) - 1)
            near = (form.rule is not None) & ((apart == 1) | (apart == (1 << bits) - 1))
            stored |= there
            off |= there & near
            wrong |= there & (apart != 0) & ~near
        counts.stored += int(np.count_nonzero(stored))
        counts.absent += int(np.count_nonzero(~stored))
        counts.corrected += int(np.count_nonzero(off & ~wrong))
        counts.unexplained += int(np.count_nonzero(wrong))
    return counts


def _ranges(rows: int, cols: int) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK // cols)
    for start in range(0, rows, step):
        yield start, min(start + step, rows)
