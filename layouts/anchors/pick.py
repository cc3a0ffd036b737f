"""Which form each tensor has: windows expected under every form are looked for, and the form most of whose windows are found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from layouts.anchors.forms import (
    Arrangement,
    axis_orders,
    float_arrangements,
    float_raw,
    integer_arrangements,
    integer_rules,
    integers,
)
from layouts.anchors.scan import U64, Bytes, Fields, Window
from layouts.codecs import Float32
from layouts.digits import Int64
from layouts.errors import LayoutError
from layouts.integers import INTEGERS, integer_codec
from layouts.scales import Scales

SAMPLED_LINES = 6
STRETCHES, STRETCH = 4, 40
LEAST_HITS, LEAST_SHARE = 5, 0.02
MAX_WHOLE, MAX_APART = 1 << 24, 1 << 20
STEPS = (2, 4, 8, 16, 32)
CONTIGUOUS = Window(8, 8)


@dataclass(frozen=True)
class Weight:
    """A tensor that an engine may hold: name, and its array, float32; `gains`: vectors by name that may be multiplied into
    the columns."""

    name: str
    array: Float32
    gains: tuple[tuple[str, Float32], ...] = ()

    def matrix(self, order: tuple[int, ...], folded: str = "") -> Float32:
        """The array as rows and columns, C-contiguous; a vector is one row."""
        if self.array.ndim < 2:
            return np.ascontiguousarray(self.array.reshape(1, -1))
        turned = self.array.transpose(order)
        matrix = np.ascontiguousarray(turned.reshape(turned.shape[0], -1))
        return matrix * dict(self.gains)[folded] if folded else matrix


@dataclass(frozen=True)
class Form:
    """How a tensor may be stored.

    order : of its axes, rows first; () for a vector
    by_rows : neighbours in memory are of one row, otherwise of one column
    step : fields from one element to the next
    """

    arrangement: Arrangement
    order: tuple[int, ...]
    by_rows: bool
    rule: Scales | None = None
    folded: str = ""
    step: int = 1

    @property
    def window(self) -> Window:
        bits = self.arrangement.planes[0][1]
        return Window(bits, bits * self.step, self.arrangement.high_first)


Sampled = tuple[Form, U64]


def pick_forms(blob: Bytes, weights: Sequence[Weight]) -> dict[str, list[Form]]:
    """Forms of each weight that were found, the best first; weights that were not found are left out."""
    found: dict[str, list[Form]] = {}
    for stage in (_floats, _rows, _groups, _columns, _apart):
        left = [weight for weight in weights if weight.name not in found]
        stages = _stage(blob, {weight.name: list(stage(weight)) for weight in left})
        if stage is _rows:
            alike = {
                weight.name: list(_grouped(weight, stages[weight.name][0][1]))
                for weight in left
                if weight.name in stages
            }
            for name, forms in _stage(blob, alike).items():
                stages[name] = sorted(stages[name] + forms, key=lambda pair: -pair[0])
        found |= {name: [form for _, form in forms] for name, forms in stages.items()}
    return found


def _grouped(weight: Weight, form: Form) -> Iterator[Sampled]:
    """Group rules beside a row rule under which some windows were found: a group may have the row's largest magnitude."""
    if form.rule is None:
        return
    name = form.arrangement.codec
    for folded in dict.fromkeys((form.folded, "", *(gain for gain, _ in weight.gains if form.order == (0, 1)))):
        rows = weight.matrix(form.order, folded)
        rows = rows[_lines(len(rows))]
        for rule in integer_rules(name, rows.shape[1]):
            if rule.group < rows.shape[1]:
                found = replace(form, rule=rule, folded=folded)
                try:
                    raw = integer_codec(name).to_raw(integers(rows, rule, name))
                except LayoutError:
                    continue
                yield found, _windows(form.arrangement.fields(raw, 0), found)


def count_hits(blob: Bytes, weights: Sequence[Weight]) -> dict[str, int]:
    """Windows of each weight that were found under its best form."""
    best = dict.fromkeys((weight.name for weight in weights), 0)
    for stage in (_floats, _rows, _groups):
        if any(best.values()):
            break
        for name, forms in _stage(blob, {weight.name: list(stage(weight)) for weight in weights}).items():
            best[name] = forms[0][0]
    return best


def _stage(blob: Bytes, samples: dict[str, list[Sampled]]) -> dict[str, list[tuple[int, Form]]]:
    """Windows found and form, the best first."""
    tried = [(name, form, keys) for name, forms in samples.items() for form, keys in forms]
    hits = np.zeros(len(tried), np.int64)
    for apart in sorted(
        {_scanned(form.window) for _, form, _ in tried}, key=lambda window: (window.width, window.step)
    ):
        own = [index for index, (_, form, _) in enumerate(tried) if _scanned(form.window) == apart]
        owner = np.repeat(own, [len(tried[index][2]) for index in own])
        number, _ = apart.find(blob, np.concatenate([tried[index][2] for index in own]))
        hits += np.bincount(owner[np.unique(number)], minlength=len(tried))
    found: dict[str, list[tuple[int, Form]]] = {}
    for count, (name, form, keys) in zip(hits.tolist(), tried, strict=True):
        if count >= max(LEAST_HITS, LEAST_SHARE * len(keys)):
            found.setdefault(name, []).append((count, form))
    return {name: sorted(forms, key=lambda pair: -pair[0]) for name, forms in found.items()}


def _scanned(window: Window) -> Window:
    """Windows of fields side by side are eight bytes, whatever the fields."""
    return CONTIGUOUS if window.step == window.width else window


def _floats(weight: Weight) -> Iterator[Sampled]:
    if weight.array.ndim < 2:
        lines = weight.array.reshape(1, -1)
        for arrangement in float_arrangements():
            for step in (1, 2):
                yield from _sample(lines, Form(arrangement, (), True, step=step))
        return
    for order in axis_orders(weight.array.shape, 1):
        matrix = weight.matrix(order)
        for arrangement in float_arrangements():
            for by_rows in (True, False):
                yield from _sample(matrix, Form(arrangement, order, by_rows))


def _rows(weight: Weight) -> Iterator[Sampled]:
    yield from _integers(weight, False)


def _groups(weight: Weight) -> Iterator[Sampled]:
    yield from _integers(weight, True)


def _integers(weight: Weight, grouped: bool) -> Iterator[Sampled]:
    """Rows whose neighbours in memory are of one row."""
    if weight.array.ndim < 2:
        return
    for order in axis_orders(weight.array.shape, 2):
        gains = [name for name, gain in weight.gains if order == (0, 1)]
        for folded in ("", *gains):
            rows = weight.matrix(order, folded)
            rows = rows[_lines(len(rows))]
            for name in INTEGERS:
                for rule in integer_rules(name, rows.shape[1]):
                    if (rule.group < rows.shape[1]) == grouped:
                        yield from _of_rule(rows, Form(Arrangement(name, ()), order, True, rule, folded))


def _columns(weight: Weight) -> Iterator[Sampled]:
    """Integers whose neighbours in memory are of one column."""
    if weight.array.ndim < 2 or weight.array.size > MAX_WHOLE:
        return
    for order in axis_orders(weight.array.shape, 2):
        matrix = weight.matrix(order)
        for name in INTEGERS:
            for rule in integer_rules(name, matrix.shape[1]):
                if rule.group == matrix.shape[1]:
                    yield from _of_rule(matrix, Form(Arrangement(name, ()), order, False, rule))


def _apart(weight: Weight) -> Iterator[Sampled]:
    """Arrays with an axis too short for a window, as the channels of a first convolution, which compilers pad: the elements
    of another axis stand so many fields apart."""
    if weight.array.ndim < 3 or weight.array.size > MAX_APART:
        return
    for order, step in product(axis_orders(weight.array.shape, 1), STEPS):
        matrix = weight.matrix(order)
        for arrangement, by_rows in product(float_arrangements(), (True, False)):
            yield from _sample(matrix, Form(arrangement, order, by_rows, step=step))
        for rule in integer_rules("s8", matrix.shape[1]):
            if rule.group == matrix.shape[1]:
                yield from _plain_apart(matrix, Form(Arrangement("s8", ()), order, True, rule, step=step))


def _plain_apart(matrix: Float32, form: Form) -> Iterator[Sampled]:
    """Whole bytes of every so many."""
    for found, _ in _of_rule(matrix, replace(form, step=1)):
        if len(found.arrangement.planes) == 1 and found.rule is not None:
            raw = integer_codec("s8").to_raw(integers(matrix, found.rule, "s8"))
            apart = replace(found, step=form.step)
            yield apart, _windows(apart.arrangement.fields(raw, 0), apart)


def _of_rule(values: Float32, form: Form) -> Iterator[Sampled]:
    assert form.rule is not None
    name = form.arrangement.codec
    try:
        raw = integer_codec(name).to_raw(integers(values, form.rule, name))
    except LayoutError:
        return
    for arrangement in integer_arrangements(name):
        if len(arrangement.planes) == 1 or arrangement.planes[1][2]:  # the second plane's bias is told later
            found = Form(arrangement, form.order, form.by_rows, form.rule, form.folded)
            yield found, _windows(arrangement.fields(raw, 0), found)


def _sample(matrix: Float32, form: Form) -> Iterator[Sampled]:
    lines = matrix if form.by_rows else matrix.T
    lines = lines[_lines(len(lines))]
    try:
        raw = float_raw(lines, form.arrangement.codec)
    except LayoutError:
        return
    yield form, _windows(raw, Form(form.arrangement, form.order, True, step=form.step))


def _windows(fields: Fields, form: Form) -> U64:
    lines = fields if form.by_rows else fields.T
    lines = lines[_lines(len(lines))]
    starts = _starts(lines.shape[1] - form.window.count + 1)
    keys = form.window.keys(lines, starts)
    good: npt.NDArray[np.bool_] = form.window.telling(lines, starts)
    return keys[good]


def _lines(count: int) -> Int64:
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLED_LINES)).astype(np.int64))


def _starts(count: int) -> Int64:
    """Some stretches of elements, all over a line."""
    if count <= STRETCHES * STRETCH:
        return np.arange(max(0, count))
    firsts = np.linspace(0, count - STRETCH, STRETCHES).astype(np.int64)
    return np.unique(np.concatenate([first + np.arange(STRETCH) for first in firsts]))
