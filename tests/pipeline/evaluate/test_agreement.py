from __future__ import annotations

import pytest

from pipeline.errors import MismatchError
from pipeline.evaluate.agreement import PROMPTS, agree, common_prefix
from pipeline.evaluate.continuations import follow
from pipeline.evaluate.known_answers import KNOWN_ANSWERS, KnownAnswer


def test_prefix_is_the_share_of_leading_tokens() -> None:
    result = agree([[1, 2, 3, 4], [5, 6]], [[1, 2, 9, 4], [5, 6]])
    assert result.prefix == pytest.approx((0.5 + 1) / 2)
    assert (result.exact, result.prompts) == (1, 2)


def test_a_continuation_that_stops_early_does_not_agree_to_its_end() -> None:
    assert agree([[1, 2, 3, 4]], [[1, 2]]).prefix == pytest.approx(0.5)
    assert agree([[]], [[1]]).prefix == 0


@pytest.mark.parametrize(("a", "b", "n"), [([], [], 0), ([1], [2], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2)])
def test_common_prefix(a: list[int], b: list[int], n: int) -> None:
    assert common_prefix(a, b) == n


@pytest.mark.parametrize(("a", "b"), [([], []), ([[1]], [])])
def test_another_number_of_prompts_is_refused(a: list[list[int]], b: list[list[int]]) -> None:
    with pytest.raises(MismatchError, match="number of continuations"):
        agree(a, b)


def test_there_are_ten_prompts_and_twelve_questions() -> None:
    assert len(set(PROMPTS)) == 10
    assert len({case.name for case in KNOWN_ANSWERS}) == 12
    assert {"capital", "arithmetic", "sequence", "code"} <= {case.name for case in KNOWN_ANSWERS}


def test_an_answer_must_come_first() -> None:
    case = KnownAnswer("capital", "The capital of France is", r"Paris\b")
    assert case.passes(" Paris.\n\nThe answer")
    assert not case.passes(" not Paris")
    assert not case.passes(" Parisian")
    assert not case.passes("")


class Parrot:
    """Says the number after the last one, whatever stands before; 10 after 3."""

    def most_likely(self, sequences: list[list[int]], starts: list[int]) -> list[list[int]]:
        pairs = zip(sequences, starts, strict=True)
        return [[10 if token == 3 else token + 1 for token in tokens[start - 1 :]] for tokens, start in pairs]


@pytest.mark.parametrize(
    ("own", "expected"),
    [([2, 3, 10], [2, 3, 10]), ([2, 3, 4, 5], [2, 3, 10]), ([7], [2]), ([], [])],
)
def test_follow_ends_with_the_first_token_that_differs(own: list[int], expected: list[int]) -> None:
    assert follow(Parrot(), [[9, 1], [4]], [own, [5]]) == [expected, [5]]
