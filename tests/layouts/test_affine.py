"""Rows with zero points: every element and entry against a transcription one number at a time; through a blob and a sidecar."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layouts.algebra import parse_piece
from layouts.bias import Bias
from layouts.encoding import decode_rows, encode_rows
from layouts.errors import LayoutError, ScaleRefused
from layouts.scales import Scales
from layouts.sidecar import dump_layout, load_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor, from_matrix, to_matrix
from layouts.view import read_encoded, write_tensor

ROWS, COLS, PADDING = 12, 30, 2
LARGEST = 0.0210123456789
FACTOR, INPUT, ZERO = 16384 / LARGEST, 0.0371234567891234, -7
LEAST, SMALLEST = LARGEST / 16384, 0.0033


def plane(text: str) -> Plane:
    return Plane((parse_piece(f"at 0,0  {text}"),))


def tensor() -> StoredTensor:
    values = plane(f"[{ROWS},{COLS + PADDING}]  rows {ROWS}:256  cols 32:8  width 8  base 0")
    entries = plane(f"[{ROWS},2]  rows {ROWS}:16  cols 2:-256  width 16  base 8256")
    bias = plane(f"[{ROWS},1]  rows {ROWS}:32  cols 1:0  width 32  base 4096")
    scales = Scales("affine", COLS + PADDING, 255.0, shared=True, factor=FACTOR, zero=SMALLEST)
    copy = Copy("decode", (values,), entries, bias)
    dims, order = (COLS, ROWS), (1, 0)
    rule = Bias("b", "affine", INPUT, ZERO)
    return StoredTensor("w", (ROWS, COLS + PADDING), "s8", (copy,), scales, "", rule, dims, order, PADDING)


def values(seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    array = draw.normal(size=(COLS, ROWS)) * draw.uniform(0.2, 1, ROWS) + draw.uniform(-2, 2, ROWS)
    array[:, 3], array[:, 4], array[:, 5] = np.abs(array[:, 3]), -np.abs(array[:, 4]), 0
    array[:, 6] *= 1e-6  # below the least scale
    return array.astype(np.float32)


def test_against_numbers_one_by_one() -> None:
    stored, array, bias = tensor(), values(), np.linspace(-3, 3, ROWS).astype(np.float32)
    encoded = encode_rows(stored, to_matrix(stored, array), bias=bias)
    assert encoded.entries is not None and encoded.bias is not None
    for row in range(ROWS):
        line = [float(value) for value in array[:, row]]
        low, high = min([0.0, *line]), max([0.0, *line])
        span = (high - low) / 255
        scale, point = max(span or SMALLEST, LEAST), round(-128 - low / span) if span else 0
        q = []
        for value in [*line, 0.0, 0.0]:
            step = np.float32(np.float32(value) / np.float32(scale)) + np.float32(point)
            q.append(max(-128, min(127, round(float(np.float32(step))))))
        assert encoded.raw[row].view(np.int8).tolist() == q
        assert q[-PADDING:] == [point] * PADDING
        share = round(float(np.float32(scale) * (np.float32(16384) / np.float32(LARGEST))))
        assert encoded.entries[row].view(np.int16).tolist() == [share, -point]
        total = round(float(np.float32(bias[row] / np.float32(scale * INPUT)))) - ZERO * sum(n - point for n in q)
        assert encoded.bias[row].view(np.int32).item() == total


def test_written_read_and_as_text() -> None:
    stored, array, bias = tensor(), values(1), np.ones(ROWS, np.float32)
    layout = EngineLayout("model", "body", 2000, (stored,))
    assert load_layout(dump_layout(layout)) == layout
    assert 'entry = "affine"' in dump_layout(layout) and "padding = 2" in dump_layout(layout)
    blob = np.zeros(2000, np.uint8)
    encoded = encode_rows(stored, to_matrix(stored, array), bias=bias)
    write_tensor(blob, stored, encoded)
    found = read_encoded(blob, stored)
    assert all(np.array_equal(getattr(found, name), getattr(encoded, name)) for name in ("raw", "entries", "bias"))
    held = from_matrix(stored, decode_rows(stored, found))
    assert held.shape == array.shape
    assert np.abs(held - array).max() < 0.03


def test_scales_of_an_engine_stay_as_they_are() -> None:
    """What entries say is rounded to 15 bits; encoded again it is the same entry, and zero points are exact."""
    stored = tensor()
    first = encode_rows(stored, to_matrix(stored, values(2)), bias=np.zeros(ROWS, np.float32))
    assert stored.scales is not None and first.entries is not None
    held = stored.scales.decode(first.entries)
    again = encode_rows(stored, to_matrix(stored, values(3)), given=held, bias=np.zeros(ROWS, np.float32))
    assert np.array_equal(again.entries, first.entries)
    assert again.clipped > 0


def test_a_row_far_larger_than_the_factor_allows_is_refused() -> None:
    stored, array = tensor(), values()
    array[:, 7] *= 100
    with pytest.raises(ScaleRefused, match=r"\[7, 0\] would be 0 or above 32767"):
        encode_rows(stored, to_matrix(stored, array), bias=np.zeros(ROWS, np.float32))
    array[4, 7] = np.nan
    with pytest.raises(LayoutError, match=r"element \[7, 4\] is not finite"):
        encode_rows(stored, to_matrix(stored, array), bias=np.zeros(ROWS, np.float32))


def test_columns_of_a_source_with_scales_of_their_own() -> None:
    part = replace(tensor(), name="w/run1", source="w", columns=(10, 40), dims=(50, ROWS))
    wide = np.random.default_rng(4).normal(size=(50, ROWS)).astype(np.float32)
    assert np.array_equal(to_matrix(part, wide)[:, :COLS], wide[10:40].T)
    layout = EngineLayout("model", "body", 2000, (part,))
    assert load_layout(dump_layout(layout)) == layout
    assert (part.source_name, tensor().source_name) == ("w", "w")
    for wrong in (
        {"columns": (10, 39)},
        {"columns": (30, 60)},
        {"source": ""},
        {"columns": (1,)},
        {"dims": (), "order": ()},
    ):
        with pytest.raises(LayoutError):
            replace(part, **wrong)
    with pytest.raises(LayoutError, match="only some columns"):
        from_matrix(part, to_matrix(part, wide))


@pytest.mark.parametrize("padding", [-1, COLS + PADDING, PADDING - 1])
def test_padding_that_does_not_fit(padding: int) -> None:
    with pytest.raises(LayoutError):
        replace(tensor(), padding=padding)
