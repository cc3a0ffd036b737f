from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from pipeline.errors import MismatchError, NotFiniteError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import compare, log_softmax

P = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.6, 0.3]], np.float64))
Q = np.log(np.array([[0.25, 0.25, 0.5], [0.1, 0.6, 0.3]], np.float64))


def test_figures_of_a_case_done_by_hand() -> None:
    result = compare(P, Q, [0, 1])
    first = 0.5 * math.log(2) + 0.25 * math.log(1) + 0.25 * math.log(0.5)
    assert result.positions == 2
    assert result.kld_mean == pytest.approx(first / 2)
    assert result.kld_max == pytest.approx(first)
    assert (result.top1, result.top1_tie_aware, result.ties) == (0.5, 0.5, 0.0)
    assert result.ppl == pytest.approx((0.25 * 0.6) ** -0.5)
    assert result.ppl_reference == pytest.approx((0.5 * 0.6) ** -0.5)
    assert result.ppl_ratio == pytest.approx(math.sqrt(2))


def test_divergence_is_from_the_reference() -> None:
    p, q = np.array([[2.0, 0.0, -3.0]]), np.array([[0.0, 0.5, 1.0]])
    forward, backward = compare(p, q, [0]).kld_mean, compare(q, p, [0]).kld_mean
    weights = np.exp(p) / np.exp(p).sum()
    expected = (weights * (np.log(weights) - np.log(np.exp(q) / np.exp(q).sum()))).sum()
    assert forward == pytest.approx(expected)
    assert abs(forward - backward) > 0.1


def test_tie_aware_counts_the_reference_among_the_maxima() -> None:
    reference = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    tied = np.array([[0.0, 2.0, 2.0], [1.0, 2.0, 2.0], [0.0, 3.0, 1.0]])
    result = compare(reference, tied, [-1, -1, -1])
    assert result.top1 == pytest.approx(1 / 3)
    assert result.top1_tie_aware == pytest.approx(2 / 3)
    assert result.ties == pytest.approx(2 / 3)


def test_equal_logits_do_not_differ_up_to_a_constant() -> None:
    z = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    result = compare(z, z.astype(np.float64) + 7, [1] * 5)
    assert result.kld_mean == pytest.approx(0, abs=1e-12)
    assert (result.top1, result.ppl_ratio) == (1.0, pytest.approx(1))


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((23, 50)).astype(np.float32)
    b = (a + 0.1 * rng.standard_normal(a.shape)).astype(ml_dtypes.bfloat16)
    targets = [*rng.integers(0, 50, 20).tolist(), -1, 3, -1]
    whole = compare(a, b, targets)
    monkeypatch.setattr(metrics, "CHUNK_ELEMENTS", 150)
    assert compare(a, b, targets) == whole


def test_softmax_survives_large_logits() -> None:
    z = log_softmax(np.array([[1e4, 1e4 - 1, -1e4]], np.float32))
    assert z.dtype == np.float64
    np.testing.assert_allclose(np.exp(z).sum(), 1)
    np.testing.assert_allclose(z[0, 2], -2e4 - math.log1p(math.exp(-1)), rtol=1e-12)


def test_a_nan_is_named_with_its_side_and_position() -> None:
    bad = P.copy()
    bad[1, 2] = np.nan
    with pytest.raises(NotFiniteError, match="other, position 1: logits are not finite"):
        compare(P, bad, [0, 1])
    with pytest.raises(NotFiniteError, match="reference, position 1"):
        compare(bad, P, [0, 1])


@pytest.mark.parametrize("targets", [[0], [0, 1, 2]])
def test_another_number_of_targets_is_refused(targets: list[int]) -> None:
    with pytest.raises(MismatchError, match="number of targets"):
        compare(P, Q, targets)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(MismatchError, match=r"expected \(2, 3\), found \(2, 2\)"):
        compare(P, Q[:, :2], [0, 1])
    with pytest.raises(MismatchError, match="number of targets"):
        compare(P[:0], Q[:0], [])
