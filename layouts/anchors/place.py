"""Places of every element of one tensor under a form, plane by plane, and how many of them hold what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from layouts.algebra import Piece
from layouts.anchors.claims import Claims
from layouts.anchors.forms import Arrangement, float_raw, integer_rules, integers
from layouts.anchors.layers import find_layers, seam_of, second_plane
from layouts.anchors.lines import Sheets
from layouts.anchors.pick import Form, Weight
from layouts.anchors.scan import Bytes, Fields, Window, read_fields
from layouts.anchors.sheet_pieces import Pieces, pieces_of
from layouts.codecs import Float32
from layouts.copies import Plane
from layouts.digits import Int64
from layouts.errors import FitRefused, LayoutError
from layouts.integers import integer_codec

MAX_PIECES = 512
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


def place(blob: Bytes, weight: Weight, form: Form, claims: Claims, again: bool = True) -> Placed | None:
    """Find every element, None where a plane is nowhere; `again`, once, where another rule explains more.

    Raises FitRefused, DecodeRefused.
    """
    before, matrix = claims.copy(), weight.matrix(form.order, form.folded)
    raw = _raw(matrix, form)
    seam = seam_of(form.arrangement.fields(raw, 0), form, form.window, claims)
    first = find_layers(blob, seam)
    if not first:
        return None
    layers = [first]
    if len(form.arrangement.planes) > 1:
        found = second_plane(blob, raw, form, first, claims)
        if found is None:
            return None
        form, second = found
        layers.append(second)
    planes = [_copies(each, form.arrangement.window(index), not form.by_rows) for index, each in enumerate(layers)]
    settled = _settle_rule(blob, matrix, form, planes)
    if settled != form and again:  # lines that two rules make alike were found under the wrong one
        claims.become(before)
        return place(blob, weight, settled, claims, again=False)
    return Placed(weight, form, planes, _count(blob, form, raw, planes), raw)


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


def _settle_rule(blob: Bytes, matrix: Float32, form: Form, planes: list[list[Pieces]]) -> Form:
    """The rule under which the fewest integers of some rows differ from what stands at their places."""
    if form.rule is None:
        return form
    kind, name = integer_codec(form.arrangement.codec), form.arrangement.codec
    best: tuple[int, Form] | None = None
    step = max(1, len(matrix) // RULE_ROWS)
    picked = list(range(0, len(matrix), step))
    parts = [stored_integers(blob, form.arrangement, planes, 0, (row, row + 1), matrix.shape[1]) for row in picked]
    found, there = (np.concatenate(side) for side in zip(*parts, strict=True))
    for rule in (form.rule, *integer_rules(name, matrix.shape[1])):
        try:
            wrong = int(np.count_nonzero((kind.to_raw(integers(matrix[picked], rule, name)) != found) & there))
        except LayoutError:
            continue
        if best is None or wrong < best[0]:
            best = wrong, replace(form, rule=rule)
    return form if best is None else best[1]


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
