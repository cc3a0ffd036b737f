"""Integer codecs and scale entries: every bit pattern, golden entries, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from layouts.entry_codecs import ENTRIES, entry_codec
from layouts.errors import LayoutError, ScaleRefused
from layouts.integers import integer_codec
from layouts.scales import Scales

PATTERNS = np.arange(1, 1 << 15, dtype=np.uint16)


@pytest.mark.parametrize(("name", "low", "high"), [("s8", -128, 127), ("s4", -8, 7)])
def test_every_integer_is_its_twos_complement(name: str, low: int, high: int) -> None:
    kind = integer_codec(name)
    q = np.arange(low, high + 1, dtype=np.int8)
    raw = kind.to_raw(q)
    assert raw.dtype == kind.raw_dtype == np.uint8
    assert raw.tolist() == [int(n) % (1 << kind.width) for n in q]
    assert np.array_equal(kind.from_raw(raw), q)


@pytest.mark.parametrize(("name", "dtype"), [("bf16", ml_dtypes.bfloat16), ("fp16", np.float16)])
def test_every_half_stands_for_itself(name: str, dtype: type) -> None:
    kind = entry_codec(name)
    numbers = PATTERNS.view(dtype).astype(np.float32)
    finite = np.isfinite(numbers)
    assert np.array_equal(kind.encode(numbers[finite]), PATTERNS[finite])
    assert np.array_equal(kind.decode(PATTERNS[finite]), numbers[finite])
    assert np.array_equal(kind.usable(PATTERNS), finite)


@pytest.mark.parametrize("name", [name for name, kind in sorted(ENTRIES.items()) if not kind.nearest])
def test_held_is_the_number_itself_or_the_next(name: str) -> None:
    """At, just above and just below every number that the entry can hold, subnormal ones too."""
    kind = entry_codec(name)
    dtype, infinity = (np.float16, 0x7C00) if name == "fp16" else (ml_dtypes.bfloat16, 0x7F80)
    numbers = PATTERNS[: infinity - 1].view(dtype).astype(np.float64)
    following = np.append(numbers[1:], np.inf)
    assert np.array_equal(kind.held(numbers), numbers)
    assert np.array_equal(kind.held(np.nextafter(numbers, np.inf)), following)
    assert np.array_equal(kind.held(np.nextafter(numbers, 0))[1:], numbers[1:])
    assert np.array_equal(kind.held(numbers[:-1] + np.diff(numbers) / 2), following[:-1])
    assert kind.held(np.array([1e-300]))[0] == numbers[0]


@pytest.mark.parametrize(
    ("scale", "entry"), [(1.0, 0x3F803F80), (0.5, 0x3F004000), (3.0, 0x40403EAB), (2.0**-127, 0x00407F00)]
)
def test_golden_reciprocal_entries(scale: float, entry: int) -> None:
    kind = entry_codec("reciprocal")
    assert kind.encode(np.array([scale], np.float32)).tolist() == [entry]
    assert kind.decode(np.array([entry], np.uint32)).tolist() == [scale]


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("bf16", 0.0),
        ("bf16", -1.0),
        ("bf16", np.inf),
        ("bf16", np.nan),
        ("fp16", 2.0**-26),
        ("fp16", 65536.0),
        ("reciprocal", 2.0**-129),
        ("reciprocal", np.inf),
    ],
)
def test_refused_scales_say_where(name: str, scale: float) -> None:
    scales = np.ones((3, 4), np.float32)
    scales[1, 2] = scale
    with pytest.raises(ScaleRefused, match=r"scale entry \[1, 2\] would be 0 or infinite") as caught:
        entry_codec(name).encode(scales)
    assert caught.value.at == (1, 2)


def test_usable_looks_at_both_halves() -> None:
    entries = np.array([0x3F803F80, 0x3F800000, 0x00003F80, 0x3F807F80, 0x7F803F80, 0xBF803F80, 0x3F80BF80], np.uint32)
    assert entry_codec("reciprocal").usable(entries).tolist() == [True] + [False] * 6


def test_unknown_names() -> None:
    with pytest.raises(LayoutError, match=r"unknown integer codec \(expected s8 \| s4, found s5\)"):
        integer_codec("s5")
    with pytest.raises(LayoutError, match="unknown scale entry"):
        entry_codec("fp64")


@pytest.mark.parametrize(
    ("group", "divisor", "reason"), [(0, 7.0, "columns"), (128, 0.5, "divisor"), (128, 256.0, "divisor")]
)
def test_rules_out_of_range(group: int, divisor: float, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        Scales("bf16", group, divisor, False)


def test_groups_of_a_row() -> None:
    scales = Scales("bf16", 128, 7, False)
    assert [scales.groups(cols) for cols in (1, 127, 128, 129, 576)] == [1, 1, 1, 2, 5]
    assert isinstance(scales.divisor, float)
