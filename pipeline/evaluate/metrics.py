"""How far one set of logits is from another, in float64 and in chunks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.errors import MismatchError, NotFiniteError

Float64 = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

CHUNK_ELEMENTS = 1 << 22


class Logits(Protocol):
    """`[positions, vocab]` of any float type, in memory or mapped from a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice, /) -> Array: ...


@dataclass(frozen=True)
class Comparison:
    """Means over positions of `other` against `reference`.

    kld_mean : KL(reference || other), nats
    top1 : share of positions where both have the same most likely token (the lowest id among equals)
    top1_tie_aware : share where the reference's most likely token is among the most likely ones of `other`
    ties : share where `other` has more than one most likely token
    ppl, ppl_reference : perplexity of the text under each
    """

    positions: int
    kld_mean: float
    kld_max: float
    top1: float
    top1_tie_aware: float
    ties: float
    ppl: float
    ppl_reference: float

    @property
    def ppl_ratio(self) -> float:
        return self.ppl / self.ppl_reference


def log_softmax(logits: Array) -> Float64:
    """Row-wise, float64."""
    z = logits.astype(np.float64)
    z -= z.max(axis=-1, keepdims=True)
    z -= np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return z


def compare(reference: Logits, other: Logits, targets: Sequence[int]) -> Comparison:
    """Compare two sets of logits `[positions, vocab]`.

    Parameters
    ----------
    targets : the token that follows each position; -1 where there is none, which perplexity skips

    Raises
    ------
    MismatchError : different shapes, or another number of targets
    NotFiniteError : a NaN or an infinity among the logits
    """
    if reference.shape != other.shape:
        raise MismatchError("shape of the logits", expected=reference.shape, found=other.shape)
    positions, vocab = reference.shape
    if len(targets) != positions or positions == 0:
        raise MismatchError("number of targets", expected=max(positions, 1), found=len(targets))
    step = max(1, CHUNK_ELEMENTS // vocab)
    wanted = np.asarray(targets, np.int64)
    chunks = [
        _compare_rows(reference[i : i + step], other[i : i + step], wanted[i : i + step], i)
        for i in range(0, positions, step)
    ]
    kld, same, among, ties, nll, nll_reference = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return Comparison(
        positions=positions,
        kld_mean=float(kld.mean()),
        kld_max=float(kld.max()),
        top1=float(same.mean()),
        top1_tie_aware=float(among.mean()),
        ties=float(ties.mean()),
        ppl=_perplexity(nll),
        ppl_reference=_perplexity(nll_reference),
    )


def _compare_rows(reference: Array, other: Array, targets: Array, first: int) -> tuple[Array, ...]:
    for side, rows in (("reference", reference), ("other", other)):
        bad = np.flatnonzero(~np.isfinite(rows.astype(np.float32)).all(axis=1))
        if len(bad):
            raise NotFiniteError("logits are not finite", where=f"{side}, position {first + bad[0]}")
    log_p, log_q = log_softmax(reference), log_softmax(other)
    kld = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    rows_index = np.arange(len(kld))
    best = reference.argmax(axis=1)
    top = other.max(axis=1)
    valid = np.flatnonzero(targets >= 0)
    return (
        kld,
        other.argmax(axis=1) == best,
        other[rows_index, best] == top,
        (other == top[:, None]).sum(axis=1) > 1,
        -log_q[valid, targets[valid]],
        -log_p[valid, targets[valid]],
    )


def _perplexity(nll: Array) -> float:
    return float(np.exp(nll.mean())) if len(nll) else float("nan")
