"""Codecs: exact on their own bytes, nearest even, and nothing silent."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from layouts.codecs import CODECS, codec
from layouts.errors import LayoutError

HALVES = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("name", ["bf16", "bf16_truncated", "fp16"])
def test_every_16_bit_pattern_round_trips(name: str) -> None:
    values = codec(name).decode(HALVES)
    numbers = ~np.isnan(values)
    assert np.count_nonzero(~numbers) in (254, 2046)
    assert np.array_equal(codec(name).encode(values[numbers]), HALVES[numbers])


def test_fp32_keeps_every_bit() -> None:
    bits = np.random.default_rng(0).integers(0, 0x7F800000, 10_000, np.uint32)
    assert np.array_equal(codec("fp32").encode(codec("fp32").decode(bits)), bits)
    assert not np.shares_memory(codec("fp32").decode(bits), bits)


def test_bf16_rounds_to_nearest_even() -> None:
    one = 0x3F800000
    bits = np.array([one + 0x7FFF, one + 0x8000, one + 0x8001, one + 0x18000, one + 0x17FFF], np.uint32)
    assert codec("bf16").encode(bits.view(np.float32)).tolist() == [0x3F80, 0x3F80, 0x3F81, 0x3F82, 0x3F81]


def test_bf16_truncated_drops_low_bits() -> None:
    bits = np.array([0x3F80FFFF, 0xBF80FFFF, 0x00008000], np.uint32)
    assert codec("bf16_truncated").encode(bits.view(np.float32)).tolist() == [0x3F80, 0xBF80, 0]


@pytest.mark.parametrize(("name", "dtype"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])
def test_rounding_equals_an_independent_one(name: str, dtype: type) -> None:
    """A reference by search: no representable neighbour is nearer, ties have an even last bit."""
    values = np.random.default_rng(3).standard_normal(20_000, np.float32) * np.float32(100)
    raw = codec(name).encode(values)
    exact = values.astype(np.float64)
    error = np.abs(raw.view(dtype).astype(np.float64) - exact)
    for step in (1, -1):
        other = np.abs((raw + np.uint16(step % 65536)).view(dtype).astype(np.float64) - exact)
        assert (error <= other).all()
        assert (raw[error == other] % 2 == 0).all()


def test_strided_input_and_shape() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T
    for kind in CODECS.values():
        assert np.array_equal(kind.decode(kind.encode(values)), values)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_nan_is_refused_by_element(name: str) -> None:
    values = np.zeros((3, 4), np.float32)
    values[2, 1] = np.nan
    with pytest.raises(LayoutError, match=r"element \[2, 1\] is NaN"):
        codec(name).encode(values)


@pytest.mark.parametrize(("name", "value"), [("fp16", 65520.0), ("bf16", 3.4e38), ("fp16", -1e6)])
def test_overflow_is_refused_by_element(name: str, value: float) -> None:
    values = np.array([[1, np.inf, value]], np.float32)
    with pytest.raises(LayoutError, match=rf"element \[0, 2\] does not fit {name}"):
        codec(name).encode(values)


def test_other_types_and_names_are_refused() -> None:
    with pytest.raises(LayoutError, match="expected float32, found float64"):
        codec("bf16").encode(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="unknown codec"):
        codec("int3")
