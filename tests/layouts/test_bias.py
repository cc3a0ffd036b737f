"""What Pulsar2 was measured to write, against a straight transcription, number by number; and what does not fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.bias import Bias
from layouts.copies import Copy, Plane, Rect
from layouts.encoding import decode_rows, encode_rows, with_bias
from layouts.errors import BiasRefused, LayoutError, ScaleRefused
from layouts.integers import integer_codec
from layouts.quantize import quantize, search_scales
from layouts.scales import Scales
from layouts.stored import StoredTensor

Float32 = npt.NDArray[np.float32]


def tensor(rows: int, cols: int, scales: Scales, bias: Bias | None, absent: int = 0) -> StoredTensor:
    """One plane; the last columns are absent."""
    held = cols - absent
    lines = Layout((rows, held), 0, (Digit(rows, 8 * held),), (Digit(held, 8),), 8)
    beside = [Plane((Piece(0, 0, Layout((rows, 1), at * 4096 * 8, (Digit(rows, 32),), (), 32)),)) for at in (1, 2)]
    rects = (Rect(0, held, rows, absent),) if absent else ()
    copy = Copy("decode", (Plane((Piece(0, 0, lines),)),), beside[0], beside[1] if bias else None, rects)
    return StoredTensor("w", (rows, cols), "s8", (copy,), scales, bias=bias)


@st.composite
def weights(draw: st.DrawFn) -> Float32:
    """Rows of noise of any magnitude, of zeros, of few values, with one outlier."""
    noise = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    values = noise.normal(size=(draw(st.integers(1, 9)), draw(st.integers(1, 300))))
    values *= 2.0 ** noise.integers(-20, 8, (len(values), 1))
    values[noise.random(len(values)) < 0.2] = 0
    if draw(st.booleans()):
        values = np.rint(values * 3)
    return values.astype(np.float32)


FACTORS = st.floats(2.0**-20, 2.0**10)
SINGLE = st.floats(2.0**-10, 2.0**10, width=32)


@settings(max_examples=60, deadline=None)
@given(weights(), FACTORS, SINGLE, st.sampled_from([0, 1, -128, 28598]), st.integers(0, 99), st.booleans())
def test_the_measured_formulas(w: Float32, c: float, a: float, z: int, seed: int, float_entry: bool) -> None:
    rows, cols = w.shape
    rule = Bias("b", "fp32" if float_entry else "int32", a, z)
    b = (np.abs(w).max(axis=1) * np.random.default_rng(seed).normal(size=rows)).astype(np.float32)
    encoded = encode_rows(tensor(rows, cols, Scales("fp32", cols, 127.5, True, c, 1e-10), rule), w, bias=b)
    assert encoded.entries is not None
    assert encoded.bias is not None
    for r in range(rows):
        top = max(abs(x) for x in w[r])
        s = np.float32(top) / np.float32(127.5) if top > 0 else np.float32(1e-10)
        q = [min(max(int(np.rint(x / s)), -128), 127) for x in w[r]]
        e = np.float32(float(s) * c)
        n = int(np.rint(b[r] / (s * np.float32(rule.factor)))) - z * sum(q)
        assert integer_codec("s8").from_raw(encoded.raw[r]).tolist() == q
        assert encoded.entries[r, 0] == e.view(np.uint32)
        stored = np.float32(float(n) * float(e)).view(np.uint32) if float_entry else np.uint32(n % (1 << 32))
        assert encoded.bias[r, 0] == stored
    assert encoded.clipped == 0


@settings(max_examples=60, deadline=None)
@given(weights(), FACTORS)
def test_scales_out_of_entries_give_these_entries(w: Float32, factor: float) -> None:
    """A factor may round two scales to one entry: the one that is taken has that very entry and is at most one away."""
    rule = Scales("fp32", w.shape[1], 127.5, True, factor, 1e-10)
    encoded = encode_rows(tensor(*w.shape, rule, None), w)
    assert encoded.entries is not None
    held = rule.decode(encoded.entries)
    assert np.array_equal(rule.encode(held), encoded.entries)
    top = np.abs(w).max(axis=1, keepdims=True)
    true = np.where(top > 0, top / np.float32(127.5), np.float32(1e-10))
    assert (np.abs(held.view(np.int32) - true.view(np.int32)) <= 2).all()
    assert np.abs(decode_rows(tensor(*w.shape, rule, None), encoded) - w).max() <= true.max() * 0.501


def test_half_a_step_beyond_the_range_is_not_clipped_and_more_is() -> None:
    """127.5 becomes 127 under the vendor's rule, whatever the roundings of scale and quotient."""
    kind, rule = integer_codec("s8"), Scales("fp32", 1, 127.5, True)
    tops = np.random.default_rng(0).uniform(1, 2, (20_000, 1)).astype(np.float32)
    scales = tops / np.float32(127.5)
    q, clipped = quantize(tops, scales, rule, kind)
    assert (q == 127).all()
    assert clipped == 0
    assert (tops / scales > 127.5).any()
    _, clipped = quantize(
        np.array([[127.51], [-128.51], [-128.5]], np.float32), np.ones((3, 1), np.float32), rule, kind
    )
    assert clipped == 2


def test_scales_searched_for_are_rounded_to_nearest() -> None:
    w = np.random.default_rng(0).normal(size=(8, 50)).astype(np.float32)
    w[:, 0] = 40
    found = search_scales(w, Scales("fp32", 50, 127.0, True, 3.0), integer_codec("s8"))
    tried = [np.float32(40 * (1 - j / 64) / 127) for j in range(32)]
    assert all(scale in tried for scale in found[:, 0])


def test_absent_elements_do_not_count_for_the_zero_point() -> None:
    rule, w = Scales("fp32", 6, 127.5, True), np.full((3, 6), 2, np.float32)
    stored = tensor(3, 6, rule, Bias("", "int32", 1.0, 5), absent=2)
    encoded = encode_rows(stored, w)
    assert encoded.bias is not None
    assert encoded.bias.view(np.int32).tolist() == [[-5 * 127 * 4]] * 3
    again = with_bias(stored, encoded, None)
    assert again.bias is not None
    assert np.array_equal(again.bias, encoded.bias)


@pytest.mark.parametrize(("entry", "most"), [("int32", 2.0**31), ("fp32", np.inf)])
def test_what_does_not_fit_names_the_row(entry: str, most: float) -> None:
    stored = tensor(3, 4, Scales("fp32", 4, 127.5, True, 1e30 if entry == "fp32" else 1.0), Bias("b", entry, 1.0, 0))
    w = np.full((3, 4), 127.5, np.float32)
    good = np.array([0, 2.0**31 - 128, -(2.0**31)], np.float32)
    if entry == "int32":
        assert encode_rows(stored, w, bias=good).bias is not None
    for bad in (2.0**31 if entry == "int32" else 1e9, np.inf, np.nan, 1e38):
        with pytest.raises(BiasRefused, match="row 2: bias entry does not fit") as caught:
            encode_rows(stored, w, bias=np.array([0, 1, bad], np.float32))
        assert caught.value.at == (2, 0)
    assert issubclass(BiasRefused, ScaleRefused)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("entry", "fp16", r"unknown bias entry \(expected fp32 \| int32"),
        ("factor", 0.0, "factor of the bias out of range"),
        ("factor", float("nan"), "factor of the bias out of range"),
        ("factor", 1e300, "factor of the bias out of range"),
        ("zero_point", 1 << 31, "zero point out of range"),
        ("tensor", "a b", "not a name"),
    ],
)
def test_rules_that_are_none(field: str, value: object, reason: str) -> None:
    given_fields = {"tensor": "b", "entry": "fp32", "factor": 1.0, "zero_point": 0} | {field: value}
    with pytest.raises(LayoutError, match=reason):
        Bias(**given_fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "factor", "zero", "reason"),
    [
        ("fp32", 0.0, 1.0, "factor of the scale rule out of range"),
        ("fp32", 1.0, float("inf"), "zero of the scale rule out of range"),
        ("fp32", 1.0, 1e-60, "zero of the scale rule out of range"),
        ("bf16", 2.0, 1.0, "factor of a scale entry of bf16"),
        ("reciprocal", 1.0, 1e-10, "zero of a scale entry of reciprocal"),
    ],
)
def test_scales_that_are_none(entry: str, factor: float, zero: float, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Scales(entry, 8, 127.0, True, factor, zero)


def test_numbers_are_float32() -> None:
    assert Scales("fp32", 8, 127.5, True, 0.1, 1e-10).zero == float(np.float32(1e-10))
    assert Bias("", "fp32", 0.1, 0) == Bias("", "fp32", float(np.float32(0.1)), 0)
