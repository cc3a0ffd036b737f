"""Words of matrices of few columns: distinct, exact under every rule, no word of a wide matrix; too many are refused."""

from __future__ import annotations

import numpy as np
import pytest

from layouts.codes import CODES, NOTHING
from layouts.errors import DecodeRefused
from layouts.integer_markers import MarkedMatrix, number_matrices
from layouts.integers import integer_codec
from layouts.narrow_codes import NARROW, NARROW_BUILDS, builds_needed
from layouts.narrow_sightings import WordTable
from layouts.quantize import quantize, refit_scales
from layouts.scales import Scales

ROWS = 577
WIDTHS = (1, 2, 3, 5, 7, 8, 15)


def narrow(codec: str, *widths: int, wide: int = 0) -> list[MarkedMatrix]:
    shapes = [("wide", (wide, 576))] if wide else []
    shapes += [(f"w{width}", (ROWS, width)) for width in widths]
    return [m for m in number_matrices(shapes, CODES[codec](NARROW_BUILDS)) if m.narrow]


@pytest.mark.parametrize("codec", CODES)
def test_words_of_all_narrow_matrices_and_planes_are_distinct(codec: str) -> None:
    matrices = narrow(codec, *WIDTHS)
    tables = [
        WordTable(matrix, matrix.narrow, plane) for matrix in matrices for plane in range(len(matrix.code.planes))
    ]
    words = np.concatenate([table.words for table in tables])
    constant = words == (words & 15) * np.uint32(0x1111111)
    assert len(np.unique(words[~constant])) == np.count_nonzero(~constant)
    assert np.count_nonzero(constant) < 20
    for table in tables:
        assert np.array_equal(table.locate(table.words), np.arange(len(table.words)))
        assert (table.locate(np.array([0, 0xFFFFFFF], np.uint32)) == NOTHING).all()


@pytest.mark.parametrize("codec", CODES)
@pytest.mark.parametrize("cols", WIDTHS)
def test_integers_are_exact_under_every_rule(codec: str, cols: int) -> None:
    (matrix,) = narrow(codec, cols)
    rules = [("bf16", 7.0), ("fp16", 7.0)] if codec == "s4" else [("reciprocal", 127.0), ("reciprocal", 127.5)]
    kind = integer_codec(codec)
    for build in range(NARROW_BUILDS):
        values = matrix.values(build, 0, ROWS)
        expected = matrix.integers(build, 0, ROWS)
        for entry, divisor in rules:
            scales = Scales(entry, 128, divisor, shared=False)
            q, clipped = quantize(values, refit_scales(values, scales, kind), scales, kind)
            assert np.array_equal(q, expected)
            assert clipped == 0
        rows, at = np.nonzero(expected < 128)
        assert np.array_equal(matrix.at(build, rows, at), expected.ravel())
        assert np.array_equal(matrix.integers(build, 100, 200), expected[100:200])


@pytest.mark.parametrize("codec", CODES)
def test_a_single_column_has_no_word_of_a_wide_matrix(codec: str) -> None:
    (matrix,), wide = narrow(codec, 1, wide=4_000), 4_000 * 576
    planes = range(len(matrix.code.planes))
    for plane in planes:
        for other in planes:
            assert (matrix.code.locate(WordTable(matrix, matrix.narrow, plane).words, other) >= wide).all()


def test_builds_that_narrow_matrices_need() -> None:
    assert builds_needed("s8", [(64, NARROW)]) == 4
    assert builds_needed("s8", [(64, NARROW - 1), (64, 64)]) == NARROW_BUILDS
    assert builds_needed("s4", [(1, 1)]) == NARROW_BUILDS
    assert builds_needed("s4", [(1, 4096)]) == 4


@pytest.mark.parametrize(("rows", "cols"), [(2000, 1), (9000, 2)])
def test_more_rows_than_words_are_refused(rows: int, cols: int) -> None:
    with pytest.raises(DecodeRefused, match=rf"^mlp: too many elements.*expected at most \d+ of {cols} col"):
        number_matrices([("mlp", (rows, cols))], CODES["s8"](NARROW_BUILDS))
