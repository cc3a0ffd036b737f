"""Words of nibbles: every stored nibble has its own, and every scale group the largest magnitude."""

from __future__ import annotations

import numpy as np
import pytest

from layouts.codes import CODES, MOST_BUILDS, NOTHING, SAFE, Code, builds_for
from layouts.errors import DecodeRefused
from layouts.integer_markers import GRAIN, number_matrices, scale_digits, scale_table
from layouts.integers import integer_codec
from layouts.quantize import quantize, refit_scales
from layouts.scales import Scales

RUNS = {"s8": 16, "s4": 15}
CASES = [(codec, builds) for codec in CODES for builds in (2, 3, 4, 6, 7)]
SAMPLE = 1 << 16


def words(code: Code, numbers: np.ndarray, plane: int) -> np.ndarray:
    fields = (code.fields(code.integers(numbers, build), plane) for build in range(code.builds))
    return sum(
        (f.astype(np.uint32) << np.uint32(4 * b) for b, f in enumerate(fields)), np.zeros(len(numbers), np.uint32)
    )


def samples(code: Code) -> list[np.ndarray]:
    count = min(code.capacity, SAMPLE)
    return [np.arange(first, first + count, dtype=np.uint32) for first in (0, code.capacity - count)]


@pytest.mark.parametrize(("codec", "builds"), CASES)
def test_every_nibble_has_a_word_of_its_own(codec: str, builds: int) -> None:
    code, found = CODES[codec](builds), []
    for numbers in samples(code):
        for plane in range(len(code.planes)):
            found.append(words(code, numbers, plane))
            assert np.array_equal(code.locate(found[-1], plane), numbers)
            for other in set(range(len(code.planes))) - {plane}:
                assert (code.locate(found[-1], other) == NOTHING).all()
    distinct = np.concatenate(found[: len(code.planes)] if code.capacity <= SAMPLE else found)
    assert len(np.unique(distinct)) == len(distinct)


@pytest.mark.parametrize(("codec", "builds"), CASES)
def test_every_run_has_the_largest_magnitude_in_every_build(codec: str, builds: int) -> None:
    code, run = CODES[codec](builds), RUNS[codec]
    for numbers in samples(code):
        whole = numbers[(-int(numbers[0])) % run :]
        for build in range(builds):
            most = (
                np.abs(code.integers(whole[: len(whole) // run * run], build).astype(int)).reshape(-1, run).max(axis=1)
            )
            assert (most == code.top).all()
    assert 2 * run - 1 <= SAFE


@pytest.mark.parametrize("codec", CODES)
def test_neighbours_do_not_look_like_each_other_corrected(codec: str) -> None:
    code, numbers = CODES[codec](6), np.arange(1 << 14, dtype=np.uint32)
    for step in (1, 2, 3, 7, 15, 16):
        rows = [code.integers(numbers, build).astype(int) for build in range(6)]
        apart = np.abs([row[step:] - row[:-step] for row in rows])
        assert not (apart <= 1).all(axis=0).any()


def test_builds_that_engines_need() -> None:
    assert [builds_for("s8", n) for n in (1, 1 << 15, (1 << 15) + 1, 1 << 23, 1 << 27)] == [4, 4, 5, 6, 7]
    assert [builds_for("s4", n) for n in (1, 15**4, 15**4 + 1, 15**6, 15**6 + 1, 1 << 27)] == [4, 4, 5, 6, 7, 7]
    limit = CODES["s8"](MOST_BUILDS).capacity
    with pytest.raises(DecodeRefused, match=rf"at most {limit}, found {limit + 1}"):
        builds_for("s8", limit + 1)


@pytest.mark.parametrize("rule", ["row", "group"])
@pytest.mark.parametrize("divisor", [127.0, 127.5])
@pytest.mark.parametrize("cols", [36, 37, 129, 255, 257, 320])
def test_s8_markers_are_exact_under_every_rule(cols: int, divisor: float, rule: str) -> None:
    (matrix,) = number_matrices([("w", (33, cols))], CODES["s8"](4))
    for group in (256, GRAIN):
        scales = Scales("reciprocal", group, divisor, shared=rule == "row")
        check_exact(matrix, scales)


@pytest.mark.parametrize("entry", ["bf16", "fp16"])
@pytest.mark.parametrize("cols", [36, 129, 255, 257])
def test_s4_markers_are_exact(cols: int, entry: str) -> None:
    (matrix,) = number_matrices([("w", (33, cols))], CODES["s4"](4))
    check_exact(matrix, Scales(entry, GRAIN, 7.0, shared=False))


def check_exact(matrix, scales: Scales) -> None:  # type: ignore[no-untyped-def]
    kind = integer_codec(matrix.code.codec)
    for build in range(matrix.code.builds):
        values = matrix.values(build, 0, 33)
        q, clipped = quantize(values, refit_scales(values, scales, kind), scales, kind)
        assert np.array_equal(q, matrix.integers(build, 0, 33))
        assert clipped == 0
        rows, cols = np.nonzero(q == q)
        assert np.array_equal(matrix.at(build, rows, cols), q.ravel())


def test_scale_words_are_distinct_and_never_constant() -> None:
    numbers = np.arange(16**4 - 16, dtype=np.uint32)
    digits = [scale_digits(numbers, build) for build in range(4)]
    assert not np.all([d == digits[0] for d in digits], axis=0).any()
    code = CODES["s4"](7)
    table = scale_table(number_matrices([("a", (300, 1)), ("b", (900, 257)), ("c", (300, 1)), ("d", (70, 9))], code), 7)
    assert len(table) == 300 + 900 * 3 + 300 + 70
    assert len(np.unique(table)) == len(table)
