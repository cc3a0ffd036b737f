"""exp, log and log-softmax of the runner against exact decimals; the sampler against its definition."""

from __future__ import annotations

import ctypes
import math
from decimal import Decimal, localcontext
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers.fake_runtime import compile_shared

Doubles = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint16]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("numerics") / "numerics.so"
    compile_shared(Path(__file__).parent / "runner_numerics.cpp", library, "-O2")
    loaded = ctypes.CDLL(str(library))
    loaded.nll.restype = ctypes.c_double
    return loaded


def bf16(values: npt.ArrayLike) -> Bits:
    return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)


def apply(function: object, x: Doubles) -> Doubles:
    y = np.empty_like(x)
    function(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(x.size))  # type: ignore[operator]
    return y


def sample(
    native: ctypes.CDLL, logits: Bits, draws: int, t: float, k: int = 0, p: float = 1.0, seed: int = 1
) -> list[int]:
    picked = np.empty(draws, np.int32)
    native.sample_many(
        logits.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(logits.size),
        ctypes.c_double(t),
        ctypes.c_uint64(k),
        ctypes.c_double(p),
        ctypes.c_uint64(seed),
        picked.ctypes.data_as(ctypes.c_void_p),
        ctypes.c_size_t(draws),
    )
    return picked.tolist()


def worst_ulp(y: Doubles, exact: list[Decimal]) -> float:
    return max(abs(float((Decimal(float(a)) - b) / Decimal(math.ulp(a)))) for a, b in zip(y, exact, strict=True))


def test_numerics_exp_within_one_ulp(native: ctypes.CDLL) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-700, 700, 1500), rng.uniform(-1, 0, 500), -np.exp(rng.uniform(-40, 3, 500))])
    with localcontext(prec=40):
        assert worst_ulp(apply(native.exp_many, x), [Decimal(float(v)).exp() for v in x]) < 1


def test_numerics_exp_edges(native: ctypes.CDLL) -> None:
    x = np.array([0.0, -0.0, -745.3, 709.8, -np.inf, np.inf, np.nan])
    assert np.array_equal(apply(native.exp_many, x), [1, 1, 0, np.inf, 0, np.inf, np.nan], equal_nan=True)


def test_numerics_log_within_two_ulp(native: ctypes.CDLL) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 1500)), rng.uniform(0.5, 2, 1500), [1.0, 2.0, 0.5, 152064.0]])
    with localcontext(prec=40):
        assert worst_ulp(apply(native.log_many, x), [Decimal(float(v)).ln() for v in x]) < 2


@pytest.mark.parametrize("vocab", [1, 2, 1000, 49152])
def test_numerics_nll(native: ctypes.CDLL, vocab: int) -> None:
    logits = bf16(np.random.default_rng(vocab).normal(0, 8, vocab))
    z = logits.view(ml_dtypes.bfloat16).astype(np.float64)
    target = int(np.argmin(z))
    expected = math.log(math.fsum(math.exp(v - z.max()) for v in z)) - (z[target] - z.max())
    found = native.nll(logits.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(vocab), ctypes.c_size_t(target))
    assert found == pytest.approx(expected, rel=1e-13, abs=1e-15)


def test_numerics_nll_table_changes_no_bit_from_row_to_row(native: ctypes.CDLL) -> None:
    logits = bf16(np.random.default_rng(5).normal(0, [[1], [8], [0.01], [40]], (4, 3000)))
    assert native.nll_is_exact(logits.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(3000), ctypes.c_size_t(4)) & 1


def test_numerics_nll_has_these_bits_everywhere(native: ctypes.CDLL) -> None:
    logits = bf16(np.arange(1000) % 97 / 8.0)
    found = native.nll(logits.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(1000), ctypes.c_size_t(7))
    assert found.hex() == "0x1.f2345e9bca4aep+3"


@pytest.mark.parametrize(
    ("values", "winner"),
    [
        ([1, 3, 3, 2], 1),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([-2, -1, -1], 1),
        ([-np.inf, -1e30], 1),
        ([1e-40, 2e-40, 0], 1),
        ([-1, 0.0, 1e-38], 2),
    ],
)
def test_numerics_greedy(native: ctypes.CDLL, values: list[float], winner: int) -> None:
    assert sample(native, bf16(values), 1, 0.0) == [winner]


@pytest.mark.parametrize("values", [[np.nan, 1], [1, np.inf], [-np.inf, -np.inf]])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numerics_refused_logits(native: ctypes.CDLL, values: list[float], temperature: float) -> None:
    assert sample(native, bf16(values), 1, temperature) == [-1]


def test_numerics_sampling_follows_the_distribution(native: ctypes.CDLL) -> None:
    values = np.array([0.0, 2.0, 1.0, -np.inf, 2.0])
    weights = np.exp(values / 0.5)
    counts = np.bincount(sample(native, bf16(values), 10000, 0.5, seed=2), minlength=5)
    assert counts / 10000 == pytest.approx(weights / weights.sum(), abs=0.012)


def test_numerics_top_k_and_top_p_cut(native: ctypes.CDLL) -> None:
    logits = bf16([0.0, 2.0, 1.0, 2.0, -1.0])
    # probabilities: 1 and 3: 0.39, 2: 0.14, 0: 0.05, 4: 0.02
    assert set(sample(native, logits, 500, 1.0, k=1)) == {1}
    assert set(sample(native, logits, 500, 1.0, k=2)) == {1, 3}
    assert set(sample(native, logits, 500, 1.0, p=0.3)) == {1}
    assert set(sample(native, logits, 500, 1.0, p=0.5)) == {1, 3}
    assert set(sample(native, logits, 500, 1.0, p=0.9)) == {1, 2, 3}
    assert set(sample(native, logits, 500, 1.0, k=3, p=0.41)) == {1}
    assert set(sample(native, logits, 2000, 1.0)) == {0, 1, 2, 3, 4}


def test_numerics_seed_decides_and_only_the_seed(native: ctypes.CDLL) -> None:
    logits = bf16(np.random.default_rng(3).normal(0, 1, 300))
    first = sample(native, logits, 50, 1.0, seed=5)
    assert sample(native, logits, 50, 1.0, seed=5) == first != sample(native, logits, 50, 1.0, seed=6)
    assert first[:7] == [46, 212, 294, 247, 124, 286, 228]


def test_numerics_tiny_temperature_is_greedy(native: ctypes.CDLL) -> None:
    assert sample(native, bf16([1.0, 1.5, 1.25]), 20, 1e-300) == [1] * 20
