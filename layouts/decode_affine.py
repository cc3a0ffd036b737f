"""From marker builds to the layout of an engine of bytes whose rows have zero points (layouts/affine.py), by blobs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layouts.affine import STEPS
from layouts.algebra import Piece
from layouts.bias import Bias, bias_entries
from layouts.byte_markers import BUILDS, ByteMarkers, Fields, find_fields, sightings
from layouts.codecs import Float32
from layouts.confirm import ReadWeight, check_explained, check_known
from layouts.decode import place_copies
from layouts.digits import Int64
from layouts.errors import DecodeRefused, FitRefused, LayoutError
from layouts.fit import fit
from layouts.integers import Int8, integer_codec
from layouts.markers import Blob, MarkedTensor, number_tensors
from layouts.quantize import quantize, refit_scales
from layouts.scales import FULL, Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

CODEC = "s8"


@dataclass(frozen=True)
class Rule:
    """How one build stores a matrix: the largest and the smallest scale of its rows (but for rows of zeros), and scale and
    zero point of what it is multiplied with.

    bias : name of the source's bias, "" for none
    """

    largest: float
    smallest: float
    input_scale: float
    input_zero: int
    bias: str = ""

    def scales(self, cols: int) -> Scales:
        """Scales of a matrix of so many columns; entries say 16384 for the largest."""
        return Scales("affine", cols, 255.0, shared=True, factor=float(FULL) / self.largest, zero=self.smallest)

    def beside(self) -> Bias:
        return Bias(self.bias, "affine", self.input_scale, self.input_zero)


Rules = Callable[[str, int], Rule]
"""(part, build) -> its rule there; the confirming build is the last."""


@dataclass(frozen=True)
class Part:
    """Columns `first:stop` of a matrix, stored with scales of their own; where they are all columns, the name is the matrix'."""

    name: str
    matrix: str
    first: int
    stop: int


@dataclass(frozen=True)
class _Stored:
    """What one build stores of a matrix: integers `[rows, cols]`, zero points, the two entries, bias entries `[rows]`."""

    q: Int8
    zero: Int8
    entries: np.ndarray[tuple[int, ...], np.dtype[np.uint16]]
    bias: np.ndarray[tuple[int, ...], np.dtype[np.uint32]]


def decode_affine_engine(
    kind: str,
    blob: tuple[str, int],
    builds: Sequence[Blob],
    markers: ByteMarkers,
    rules: Rules,
    known: ReadWeight,
    parts: Sequence[Part],
    weights: Sequence[slice],
) -> EngineLayout:
    """Place every element, all padding, every entry, and confirm.

    Parameters
    ----------
    kind, blob : as for `decode_float_engine`
    builds : blobs of the marker builds, then of the confirming build
    markers : what the marker builds hold, whole matrices
    known : weights of the confirming build as stored matrices, and biases
    parts : what is stored of the matrices
    weights : bytes of the blob that hold weights; elsewhere builds may differ in what follows from the weights otherwise, such as
        the ranges of activations

    Returns
    -------
    the layout, with the constants of the confirming build; see `with_rules` for those of another engine

    Raises
    ------
    DecodeRefused : an element or entry that is nowhere or in too many places, places that follow no layout, bytes of any build
        that the layout does not predict
    """
    marked = builds[:BUILDS]
    stored = {p.name: [_store(p, markers, rules(p.name, b), b) for b in range(BUILDS)] for p in parts}
    elements = [np.concatenate([stored[p.name][b].q.view(np.uint8).ravel() for p in parts]) for b in range(BUILDS)]
    numbered = number_tensors((p.name, stored[p.name][0].q.shape) for p in parts)
    seen = sightings(*find_fields(marked, [part.astype(np.uint32) for part in elements], 1), len(elements[0]))
    placed = place_copies(numbered, seen, 0, 8)
    last = len(builds) - 1
    tensors = tuple(_tensor(t, placed[t.name], stored[t.name], marked, rules(t.name, last)) for t in numbered)
    layout = EngineLayout(kind, blob[0], builds[0].size, tensors, blob[1])
    check_explained(layout, [_only(build, weights) for build in builds])
    _check(layout, builds, {p.name: p for p in parts}, markers, rules, known)
    return layout


def with_rules(layout: EngineLayout, rules: Mapping[str, Rule]) -> EngineLayout:
    """The layout of an engine of the same places and other constants."""
    return replace(
        layout,
        tensors=tuple(
            replace(t, scales=rules[t.name].scales(t.shape[1]), bias=rules[t.name].beside()) for t in layout.tensors
        ),
    )


def scale_range(values: Float32) -> tuple[float, float]:
    """The largest and the smallest scale of rows that are not all 0. Raises LayoutError where all are."""
    spans = (np.maximum(values.max(axis=1), 0).astype(np.float64) - np.minimum(values.min(axis=1), 0)) / STEPS
    if not spans.any():
        raise LayoutError("all values are 0: no scale")
    return float(spans.max()), float(spans[spans > 0].min())


def _store(part: Part, markers: ByteMarkers, rule: Rule, build: int) -> _Stored:
    rows = markers.rows(part.matrix)
    values = markers.values(part.matrix, build, slice(0, rows))[:, part.first : part.stop]
    scales, kind = rule.scales(values.shape[1]), integer_codec(CODEC)
    held = refit_scales(values, scales, kind)
    q, _ = quantize(values, held, scales, kind)
    entries, point = scales.encode(held), held[:, 1:].astype(np.int16)
    given = markers.bias(part.matrix, build) if rule.bias else np.zeros(rows, np.float32)
    bias = bias_entries(rule.beside(), q - point, held[:, 0], entries[:, 0], given)
    return _Stored(q, point[:, 0].astype(np.int8), entries, bias[:, 0])


def _tensor(
    tensor: MarkedTensor,
    copies: Mapping[str, tuple[Piece, ...]],
    stored: list[_Stored],
    marked: Sequence[Blob],
    rule: Rule,
) -> StoredTensor:
    if len(copies) > 1:
        raise DecodeRefused("rows that are stored twice", where=tensor.name)
    (name, pieces), (rows, cols) = next(iter(copies.items())), tensor.grid
    pads = _row_places(tensor, marked, [build.zero.view(np.uint8) for build in stored], 1)
    words = [_row_places(tensor, marked, [build.entries[:, index] for build in stored], 2) for index in (0, 1)]
    sums = _row_places(tensor, marked, [build.bias for build in stored], 4)
    for what, places in (("scale", words[0]), ("zero point", words[1]), ("bias", sums)):
        if places.shape[1] != 1:
            raise DecodeRefused(f"rows without one {what} entry", where=tensor.name, expected=1, found=places.shape[1])
    padding = pads.shape[1]
    values = (*pieces, *_pieces(tensor, pads, 8, cols)) if padding else pieces
    entries = tuple(piece for index in (0, 1) for piece in _pieces(tensor, words[index], 16, index))
    copy = Copy(name, (Plane(values),), Plane(entries), Plane(_pieces(tensor, sums, 32, 0)))
    scales = rule.scales(cols + padding)
    return StoredTensor(
        tensor.name, (rows, cols + padding), CODEC, (copy,), scales, bias=rule.beside(), padding=padding
    )


def _row_places(tensor: MarkedTensor, marked: Sequence[Blob], fields: Sequence[np.ndarray], size: int) -> Int64:
    """Bytes at which what each row stores stands, `[rows, times]`. Raises DecodeRefused where rows differ in how often."""
    expected: Fields = [field.astype(np.uint32) for field in fields]
    rows, places = find_fields(marked, expected, size)
    counts = np.bincount(rows, minlength=tensor.grid[0])
    if counts.min() != counts.max():
        where = f"{tensor.name}[{int(counts.argmin())}]"
        raise DecodeRefused(
            "rows whose entries stand in differing numbers of places", where=where, found=counts.tolist()[:8]
        )
    return places[np.argsort(rows, kind="stable")].reshape(tensor.grid[0], -1)


def _pieces(tensor: MarkedTensor, places: Int64, width: int, col: int) -> tuple[Piece, ...]:
    try:
        return tuple(Piece(piece.row, piece.col + col, piece.layout) for piece in fit(8 * places, width))
    except FitRefused as error:
        raise DecodeRefused(f"no layout describes where entries are stored: {error}", where=tensor.name) from None


def _only(build: Blob, parts: Sequence[slice]) -> Blob:
    kept = np.zeros_like(build)
    for part in parts:
        kept[part] = build[part]
    return kept


def _check(
    layout: EngineLayout,
    builds: Sequence[Blob],
    parts: Mapping[str, Part],
    markers: ByteMarkers,
    rules: Rules,
    known: ReadWeight,
) -> None:
    """Every build holds what its own rules make of its weights."""
    biases = {t.bias.tensor: parts[t.name].matrix for t in layout.tensors if t.bias is not None and t.bias.tensor}
    for build, data in enumerate(builds):

        def source(name: str, rows: slice, build: int = build) -> Float32:
            if build == len(builds) - 1:
                return known(name, rows)
            return markers.bias(biases[name], build)[None] if name in biases else markers.values(name, build, rows)

        def read(name: str, rows: slice, source: ReadWeight = source) -> Float32:
            if name in biases:
                return source(name, rows)
            part = parts[name]
            values = source(part.matrix, rows)[:, part.first : part.stop]
            return np.pad(values, ((0, 0), (0, layout[name].padding)))

        corrected = check_known(with_rules(layout, {t.name: rules(t.name, build) for t in layout.tensors}), data, read)
        if any(corrected.values()):
            raise DecodeRefused("elements one step from what the rule gives", where=f"build {build}", found=corrected)
