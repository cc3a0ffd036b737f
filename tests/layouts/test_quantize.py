"""Scale rules against exact fractions, search against its definition, and what is refused."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.encoding import decode_rows, encode_rows
from layouts.entry_codecs import ENTRIES
from layouts.errors import LayoutError, ScaleRefused
from layouts.integers import INTEGERS, IntegerCodec, integer_codec
from layouts.quantize import dequantize, largest, quantize, refit_scales, search_scales
from layouts.scales import DIVISORS, Float32, Scales
from tests.helpers.integers import published

COLUMNS = [1, 36, 37, 255, 256, 257, 600]
HALVES = {"reciprocal": ml_dtypes.bfloat16, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@cache
def every_scale(entry: str) -> list[Fraction]:
    """Every positive finite scale that an entry can hold, ascending."""
    infinity = 0x7C00 if entry == "fp16" else 0x7F80
    return [Fraction(float(x)) for x in np.arange(1, infinity, dtype=np.uint16).view(HALVES[entry])]


@st.composite
def rules(draw: st.DrawFn) -> tuple[IntegerCodec, Scales]:
    kind = draw(st.sampled_from(sorted(INTEGERS)))
    group = draw(st.sampled_from([17, 36, 128, 256]))
    divisor = draw(st.sampled_from(DIVISORS[kind]))
    return integer_codec(kind), Scales(draw(st.sampled_from(sorted(HALVES))), group, divisor, draw(st.booleans()))


@st.composite
def matrices(draw: st.DrawFn) -> Float32:
    """Rows of noise, of zeros, with an outlier, of few distinct values: all within what every entry can hold."""
    shape = (draw(st.integers(1, 5)), draw(st.sampled_from(COLUMNS)))
    noise = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    values = noise.normal(size=shape)
    values[noise.random(shape) < 0.01] *= 8
    values[noise.random(shape[0]) < 0.2] = 0
    if draw(st.booleans()):
        values = np.rint(values * 2) * 127.5
    return (values * 2.0 ** draw(st.integers(-9, 4))).astype(np.float32)


def runs_of(values: Float32, scales: Scales) -> list[tuple[int, int, Float32]]:
    """Row, group and the values that an entry answers for, one by one."""
    found = []
    for row, line in enumerate(values):
        for group in range(scales.groups(values.shape[1])):
            part = line[group * scales.group : (group + 1) * scales.group]
            found.append((row, group, line if scales.shared else part))
    return found


@settings(max_examples=60, deadline=None)
@given(rules(), matrices())
def test_refit_is_the_least_scale_that_clips_nothing(rule: tuple[IntegerCodec, Scales], values: Float32) -> None:
    kind, scales = rule
    stored = refit_scales(values, scales, kind)
    numbers = every_scale(scales.entry)
    for row, group, run in runs_of(values, scales):
        most = np.abs(run).max()
        if most == 0:
            assert stored[row, group] == 1
            continue
        wanted = Fraction(float(most)) / Fraction(scales.divisor)
        index = bisect_left(numbers, wanted)
        if np.rint(most / np.float32(float(numbers[index]))) > kind.high:
            index += 1
        assert Fraction(float(stored[row, group])) == numbers[index]
    q, clipped = quantize(values, stored, scales, kind)
    assert clipped == 0
    assert np.abs(q.astype(int)).max() <= kind.high


@settings(max_examples=20, deadline=None)
@given(rules(), matrices())
def test_search_is_the_best_of_its_32(rule: tuple[IntegerCodec, Scales], values: Float32) -> None:
    """Against the definition, one entry and one candidate at a time, nothing left out."""
    kind, scales = rule
    stored, refitted = search_scales(values, scales, kind), refit_scales(values, scales, kind)
    assert (stored <= refitted).all()
    numbers = every_scale(scales.entry)
    for row, group, run in runs_of(values, scales):
        most = Fraction(float(np.abs(run).max()))
        candidates = [float(refitted[row, group])]
        for j in range(1, 32 if most else 0):
            wanted = most * (64 - j) / 64 / Fraction(scales.divisor)
            candidates.append(float(numbers[bisect_left(numbers, wanted)]))
        errors = [error(run, candidate, kind) for candidate in candidates]
        assert stored[row, group] == candidates[int(np.argmin(errors))]


@pytest.mark.parametrize("step", [33, 32])
def test_the_last_candidate_is_33_of_64(step: int) -> None:
    """Most values are multiples of `step`: 33 is what j = 31 gives of 448 / 7, and 32 is no candidate."""
    values = np.tile(np.arange(-7, 8, dtype=np.float32) * step, (1, 1400))
    values[0, 0] = 448
    scales = Scales("fp16", 1 << 20, 7.0, False)
    assert search_scales(values, scales, integer_codec("s4")).tolist() == [[33]]


def error(run: Float32, scale: float, kind: IntegerCodec) -> float:
    q = np.clip(np.rint(run / np.float32(scale)), kind.low, kind.high)
    return float(np.square(run.astype(np.float64) - q * scale).sum())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["s8", "s4"]), st.sampled_from(["refit", "search"]), matrices())
def test_decoded_values_encode_to_themselves(kind: str, choice: str, values: Float32) -> None:
    """Under the same scales: what a set holds reads as what it was written from."""
    stored = published("w", values.shape, kind)
    first = encode_rows(stored, values, choice)
    decoded = decode_rows(stored, first)
    assert stored.scales is not None
    assert first.entries is not None
    held = ENTRIES[stored.scales.entry].decode(first.entries)
    again = encode_rows(stored, decoded, given=held)
    assert np.array_equal(again.raw, first.raw)
    assert again.entries is not None
    assert np.array_equal(again.entries, first.entries)
    assert np.array_equal(decode_rows(stored, again), decoded)


@settings(max_examples=40, deadline=None)
@given(rules(), matrices())
def test_errors_are_bounded_by_half_a_step(rule: tuple[IntegerCodec, Scales], values: Float32) -> None:
    kind, scales = rule
    stored = refit_scales(values, scales, kind)
    q, _ = quantize(values, stored, scales, kind)
    wide = np.repeat(stored, scales.group, axis=1)[:, : values.shape[1]]
    found = dequantize(q, stored, scales)
    assert np.array_equal(found.astype(np.float64), q * wide.astype(np.float64))
    assert (np.abs(values.astype(np.float64) - found) <= wide * (0.5 + 1e-6)).all()


def test_exact_quotient_of_127_and_a_half_takes_the_next_scale() -> None:
    values = np.array([[127.5, 1, -127.5]], np.float32)
    kind = integer_codec("s8")
    for entry, expected in (("bf16", 1.0078125), ("fp16", 1.0009765625)):
        scales = Scales(entry, 256, 127.5, False)
        assert refit_scales(values, scales, kind).tolist() == [[expected]]
        assert quantize(values, refit_scales(values, scales, kind), scales, kind)[0].tolist() == [[127, 1, -127]]


def test_values_of_blocks_are_those_of_rows() -> None:
    """Larger than what is looked at in one piece, with a last group that is not whole."""
    values = np.random.default_rng(0).normal(size=(300, 257)).astype(np.float32)
    kind, scales = integer_codec("s4"), Scales("fp16", 128, 7.0, False)
    stored = search_scales(values, scales, kind)
    q, clipped = quantize(values, stored, scales, kind)
    rows = [search_scales(values[i : i + 1], scales, kind) for i in range(len(values))]
    assert np.array_equal(np.concatenate(rows), stored)
    parts = [quantize(values[i : i + 1], stored[i : i + 1], scales, kind) for i in range(len(values))]
    assert np.array_equal(np.concatenate([part for part, _ in parts]), q)
    assert clipped == sum(count for _, count in parts) > 0


def test_shared_entries_are_equal_along_a_row() -> None:
    values = np.random.default_rng(1).normal(size=(40, 600)).astype(np.float32)
    for scales in (Scales("reciprocal", 256, 127.0, True), Scales("bf16", 64, 7.0, True)):
        for choose in (refit_scales, search_scales):
            stored = choose(values, scales, integer_codec("s8" if scales.group == 256 else "s4"))
            assert (stored == stored[:, :1]).all()
    assert (largest(values, scales) == np.abs(values).max(axis=1, keepdims=True)).all()


S8, S4 = integer_codec("s8"), integer_codec("s4")


@pytest.mark.parametrize("choose", [refit_scales, search_scales])
@pytest.mark.parametrize(
    ("kind", "entry", "value", "reason"),
    [
        (S4, "fp16", 1e6, r"scale entry \[2, 1\] would be 0 or infinite \(found inf\)"),
        (S8, "reciprocal", 1e-37, r"scale entry \[2, 1\] would be 0 or infinite"),
        (S4, "bf16", 3.4e38, r"what entry \[2, 1\] scales would be infinite"),
    ],
)
def test_scales_that_an_entry_cannot_hold(
    choose: Callable[[Float32, Scales, IntegerCodec], Float32],
    kind: IntegerCodec,
    entry: str,
    value: float,
    reason: str,
) -> None:
    values = np.ones((4, 300), np.float32)
    values[2, 256:] = value
    with pytest.raises(ScaleRefused, match=reason) as caught:
        choose(values, Scales(entry, 256, DIVISORS[kind.name][0], False), kind)
    assert caught.value.at == (2, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(bad: float) -> None:
    values = np.zeros((3, 300), np.float32)
    values[1, 299] = bad
    for scales in (Scales("bf16", 128, 7.0, False), Scales("bf16", 128, 7.0, True)):
        with pytest.raises(LayoutError, match=r"element \[1, 299\] is not finite"):
            refit_scales(values, scales, S4)
    with pytest.raises(LayoutError, match="takes float32"):
        refit_scales(values.astype(np.float64), scales, S4)


def test_given_scales_are_used_and_clipping_is_counted() -> None:
    stored = published("w", (2, 130), "s4")
    values = np.zeros((2, 130), np.float32)
    values[0, :3], values[1, 129] = (9, -9, 7.4), -100
    encoded = encode_rows(stored, values, given=np.array([[1, 1], [1, 2]], np.float32))
    assert encoded.clipped == 3
    assert decode_rows(stored, encoded)[0, :3].tolist() == [7, -8, 7]
    assert decode_rows(stored, encoded)[1, 129] == -16
    with pytest.raises(LayoutError, match=r"w: scales of another shape \(expected \[2, 2\], found \[2, 1\]\)"):
        encode_rows(stored, values, given=np.ones((2, 1), np.float32))
    with pytest.raises(ScaleRefused, match="would be 0 or infinite"):
        encode_rows(stored, values, given=np.zeros((2, 2), np.float32))
