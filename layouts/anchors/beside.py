"""What stands beside placed integers: scale entries, whatever their codec and constant, and bias entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from layouts.algebra import Layout, Piece
from layouts.anchors.assemble import Beside, rows_of
from layouts.anchors.biases import NEAR_BYTES, Rows, find_bias
from layouts.anchors.claims import Claims
from layouts.anchors.entries import place_entries
from layouts.anchors.factors import factor_range, factors_in, find_factors
from layouts.anchors.forms import GROUPS
from layouts.anchors.place import Placed
from layouts.anchors.scan import Bytes, Fields, Flags, Window, read_fields
from layouts.anchors.sheet_pieces import Pieces
from layouts.bias import ENTRY_WIDTH, bias_entries
from layouts.codecs import Float32
from layouts.digits import Int64
from layouts.integers import integer_codec
from layouts.quantize import refit_scales
from layouts.scales import Scales

ENTRIES_OF = {"fp32": ("fp32",), "bf16": ("reciprocal", "bf16"), "fp16": ("fp16",)}
NEAR_WORDS = 2
WORD = Window(ENTRY_WIDTH, ENTRY_WIDTH)


@dataclass(frozen=True)
class FoundScales:
    """The whole scale rule, float32 scales and raw entries `[rows, groups]`, and the places of every copy's entries.

    span : smallest and largest factor that would give these entries
    """

    scales: Scales
    held: Float32
    raw: Fields
    copies: list[Pieces]
    span: tuple[float, float] = (1.0, 1.0)


def scales_beside(blob: Bytes, found: Placed, claims: Claims) -> FoundScales | None:
    """Look for the scale entries under every codec that rounds scales as the integers say."""
    rule = found.form.rule
    if rule is None:
        return None
    held = refit_scales(found.matrix, rule, integer_codec(found.form.arrangement.codec))
    for name in ENTRIES_OF[rule.entry]:
        seen = (
            _with_factor(blob, rule, held, found.planes, claims)
            if name == "fp32"
            else _exact(blob, replace(rule, entry=name, zero=1.0), held, found.planes, claims)
        )
        if seen is not None:
            return seen
    return None


def _group_counts(cols: int) -> list[int]:
    """How many entries a row may have, the most first: fewer would be found among more."""
    return sorted({1, *(-(-cols // group) for group in GROUPS)}, reverse=True)


def _exact(
    blob: Bytes,
    rule: Scales,
    held: Float32,
    planes: list[list[Pieces]],
    claims: Claims,
) -> FoundScales | None:
    """Entries that are known bit for bit."""
    raw = rule.encode(held)
    seen = place_entries(blob, raw, planes, claims, _group_counts(rule.group) if rule.shared else (raw.shape[1],))
    if seen is None:
        return None
    return _repeated(rule, held, raw, *seen) if rule.shared else FoundScales(rule, held, raw, seen[1])


def _repeated(rule: Scales, held: Float32, raw: Fields, groups: int, copies: list[Pieces]) -> FoundScales:
    """One scale a row, kept once for each of its groups."""
    cols = rule.group
    fitting = [group for group in (256, 128, *GROUPS) if -(-cols // group) == groups]
    group = cols if groups == 1 else fitting[0] if fitting else -(-cols // groups)
    wide = replace(rule, group=group)
    return FoundScales(wide, np.repeat(held, groups, axis=1), np.repeat(raw, groups, axis=1), copies)


def _with_factor(
    blob: Bytes,
    rule: Scales,
    held: Float32,
    planes: list[list[Pieces]],
    claims: Claims,
) -> FoundScales | None:
    """Entries of an unknown factor: it is told nearly by some, and exactly by all together."""
    column = np.ascontiguousarray(held[:, 0])
    for about in find_factors(blob, column):
        expected = replace(rule, factor=about).encode(column[:, None])
        seen = place_entries(blob, expected, planes, claims, (1,), NEAR_WORDS)
        if seen is None:
            continue
        groups, copies = seen
        entries = read_fields(blob, _addresses(copies[0], len(column)), WORD).astype(np.uint32).view(np.float32)
        span = factor_range(entries, column)
        if span is None:
            continue
        factors = factors_in(*span, entries, column)
        if factors:
            exact = replace(rule, factor=factors[0])
            return replace(_repeated(exact, held, exact.encode(held), groups, copies), span=span)
    return None


def bias_beside(
    blob: Bytes, found: Placed, scales: FoundScales, vectors: Mapping[str, Float32], claims: Claims
) -> Beside:
    """Bias entries at one distance from the scale entries, in every copy."""
    beside = Beside(scales.scales, scales.copies)
    if scales.raw.shape[1] != 1 or scales.scales.entry != "fp32":
        return beside
    q = integer_codec(found.form.arrangement.codec).from_raw(found.raw).copy()
    q[~_present(found)] = 0
    at = _addresses(scales.copies[0], len(q))
    entries = np.ascontiguousarray(scales.raw[:, 0]).view(np.float32)
    rows = Rows(at, entries, np.ascontiguousarray(scales.held[:, 0]), q, scales.scales.factor, scales.span)
    main = max(scales.copies[0], key=lambda piece: piece.layout.shape[0])
    seen = None
    for part in (main, *_halves(main)[:1]):
        own = slice(part.row, part.row_stop)
        seen = seen or find_bias(blob, rows.part(part.row, part.row_stop), {k: v[own] for k, v in vectors.items()})
    if seen is None:
        return beside
    vector = vectors.get(seen.bias.tensor, np.zeros(len(q), np.float32))
    expected = bias_entries(seen.bias, q, rows.scales, entries, vector)[:, 0]
    copies = [_behind(blob, copy, expected, seen.behind) for copy in scales.copies]
    if any(copy is None for copy in copies):
        return beside
    pieces = [copy for copy in copies if copy is not None]
    for copy in pieces:
        claims.take(_addresses(copy, len(q))[rows_of(copy, len(q))], ENTRY_WIDTH)
    exact = replace(scales.scales, factor=seen.factor)
    same = np.array_equal(exact.encode(scales.held), scales.raw)
    return replace(beside, scales=exact if same else beside.scales, bias=seen.bias, bias_copies=pieces)


def _behind(blob: Bytes, entries: Pieces, expected: Fields, behind: int) -> Pieces | None:
    """Each piece of the scale entries moved to where its rows' bias entries stand: mostly as far as those of the first piece."""
    found: list[Piece] = []
    for piece in entries:
        by = _distance(blob, piece, expected, behind)
        if by is not None:
            found.append(_moved(piece, 8 * by))
            continue
        rest = _behind(blob, _halves(piece), expected, behind) if piece.layout.shape[0] > 1 else None
        if rest is None:
            return None
        found += rest
    return tuple(found)


def _distance(blob: Bytes, piece: Piece, expected: Fields, behind: int) -> int | None:
    at, own = piece.layout.expand()[:, 0], expected[piece.row : piece.row_stop].astype(np.int64)
    tried = np.arange(-NEAR_BYTES, NEAR_BYTES, 4)
    tried = np.concatenate([[behind], tried[np.argsort(np.abs(tried), kind="stable")]])
    first = read_fields(blob, at[0] + 8 * tried, WORD) == own[0]
    fitting = (int(by) for by in tried[first] if np.array_equal(read_fields(blob, at + 8 * int(by), WORD), own))
    return next(fitting, None)


def _halves(piece: Piece) -> Pieces:
    """A piece without the last block of its rows, and that block."""
    layout = piece.layout
    if not layout.rows:
        return (piece,)
    block = prod(digit.size for digit in layout.rows[:-1])
    cut = (layout.shape[0] - 1) // block * block
    shapes = ((0, cut), (cut, layout.shape[0])) if cut else ((0, layout.shape[0]),)
    return tuple(_rows(piece, first, end) for first, end in shapes)


def _rows(piece: Piece, first: int, end: int) -> Piece:
    layout = piece.layout
    base = layout.address(first, 0)
    return Piece(piece.row + first, piece.col, Layout((end - first, 1), base, layout.rows, (), layout.width))


def _present(found: Placed) -> Flags:
    stored = np.zeros(found.raw.shape, np.bool_)
    for piece in found.planes[0][0]:
        stored[piece.row : piece.row_stop, piece.col : piece.col_stop] = True
    return stored


def _addresses(pieces: Pieces, count: int) -> Int64:
    at = np.full(count, -1, np.int64)
    for piece in pieces:
        at[piece.row : piece.row_stop] = piece.layout.expand()[:, 0]
    return at


def _moved(piece: Piece, bits: int) -> Piece:
    layout = piece.layout
    return Piece(piece.row, piece.col, Layout(layout.shape, layout.base + bits, layout.rows, layout.cols, layout.width))
