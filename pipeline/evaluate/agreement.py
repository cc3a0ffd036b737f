"""How long two models say the same when both always take their most likely token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.errors import MismatchError

GREEDY_TOKENS = 24

PROMPTS = (
    "Once upon a time, in a small village by the sea,",
    "The history of computing begins with",
    "To make a good cup of tea, you need to",
    "Photosynthesis is the process by which",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "Dear Sir or Madam,\n\nI am writing to",
    "The three most important inventions of the nineteenth century were",
    "The sun rises in the east and sets in the",
    "In 1969, the first humans",
    "The recipe calls for two cups of flour, one egg and",
)


@dataclass(frozen=True)
class Agreement:
    """prefix : mean share of leading tokens that are equal; exact : prompts whose continuations are equal."""

    prefix: float
    exact: int
    prompts: int


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are equal."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def agree(reference: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> Agreement:
    """Compare continuations prompt by prompt; the longer of two counts as its length.

    Raises
    ------
    MismatchError : another number of prompts, or none
    """
    if not reference or len(reference) != len(other):
        raise MismatchError("number of continuations", expected=max(len(reference), 1), found=len(other))
    pairs = list(zip(reference, other, strict=True))
    shares = [common_prefix(a, b) / max(len(a), len(b), 1) for a, b in pairs]
    exact = sum(list(a) == list(b) for a, b in pairs)
    return Agreement(sum(shares) / len(shares), exact, len(shares))
