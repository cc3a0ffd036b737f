"""The alphabet of marker builds, and the search for it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from layouts import markers
from layouts.errors import DecodeRefused
from layouts.markers import LEAST, MOST, Alphabet, choose_alphabet, find_markers, number_tensors

ALPHABETS = [Alphabet(pairs) for pairs in (LEAST, LEAST + 1, 40, MOST)]


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=str)
def test_values_are_normal_and_span_fifty_exponents(alphabet: Alphabet) -> None:
    bits = alphabet.values
    assert len(np.unique(bits)) == len(bits)
    exponents = (bits >> 7) & 0xFF
    assert exponents.min() >= 1, "zero or subnormal"
    assert exponents.max() <= 254, "infinite or NaN"
    assert len(np.unique(exponents)) >= 50
    values = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    assert np.isfinite(values).all()
    assert (np.abs(values) >= np.finfo(np.float32).tiny).all()
    assert {-1.0, 1.0} == set(np.sign(values))


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=str)
def test_straddling_words_are_outside_the_alphabet(alphabet: Alphabet) -> None:
    """A word at the wrong phase begins with a value's high byte or ends in a value's low byte, whatever lies beside."""
    words = np.arange(1 << 16)
    high, low = np.unique(alphabet.values >> 8), np.unique(alphabet.values & 0xFF)
    wrong_phase = np.isin(words & 0xFF, high) | np.isin(words >> 8, low)
    assert (alphabet.digits[words[wrong_phase]] == -1).all()
    assert (alphabet.digits[alphabet.values] >= 0).all()
    assert np.count_nonzero(alphabet.digits >= 0) == len(alphabet.values)


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=str)
def test_numbers_survive_and_builds_never_agree(alphabet: Alphabet) -> None:
    edge = np.arange(5 * len(alphabet.values))
    numbers = np.concatenate([edge, alphabet.capacity - 1 - edge])
    first, second = (alphabet.encode(numbers, build) for build in (0, 1))
    assert (first != second).all()
    assert np.array_equal(alphabet.decode(first, second), numbers)
    assert len(np.unique(first.astype(np.uint32) << 16 | second)) == len(np.unique(numbers))


def test_equal_and_foreign_words_are_no_markers() -> None:
    alphabet = ALPHABETS[0]
    value, other = alphabet.values[:1], np.array([0], np.uint16)
    for pair in ((value, value), (value, other), (other, value)):
        assert alphabet.decode(*pair).tolist() == [-1]


def test_alphabet_grows_with_the_engine() -> None:
    assert choose_alphabet(1).pairs == LEAST
    limit = Alphabet(LEAST).capacity
    assert choose_alphabet(limit).pairs == LEAST
    assert choose_alphabet(limit + 1).pairs == LEAST + 1
    assert choose_alphabet(151_936 * 1_024).capacity >= 151_936 * 1_024
    most = Alphabet(MOST).capacity
    with pytest.raises(DecodeRefused, match=rf"at most {most}, found {most + 1}"):
        choose_alphabet(most + 1)


def test_tensors_are_numbered_without_gaps() -> None:
    tensors = number_tensors([("a", (3, 5)), ("b", (7,)), ("c", (2, 2))])
    assert [tensor.first for tensor in tensors] == [0, 15, 22]
    assert [tensor.grid for tensor in tensors] == [(3, 5), (1, 7), (2, 2)]
    alphabet = ALPHABETS[0]
    rows = tensors[0].values(alphabet, 1, 1, 3)
    assert np.array_equal(rows, alphabet.encode(np.arange(5, 15), 1).reshape(2, 5))
    assert tensors[1].values(alphabet, 0, 0, 1).shape == (7,)


def scattered(seed: int, size: int = 4000, elements: int = 150) -> tuple[list[np.ndarray], np.ndarray]:
    """Two blobs of equal noise with markers at any bytes, some touching; and the bytes."""
    random = np.random.default_rng(seed)
    alphabet, at = ALPHABETS[0], np.sort(random.choice(size // 3, elements, replace=False)) * 3
    at += random.integers(0, 2, elements)
    order = random.permutation(elements)
    noise = random.integers(0, 256, size, np.uint8)
    blobs = [noise.copy(), noise.copy()]
    for build, blob in enumerate(blobs):
        words = alphabet.encode(np.arange(elements), build)
        blob[at[order]], blob[at[order] + 1] = words & 0xFF, words >> 8
    return blobs, at[order]


@pytest.mark.parametrize("chunk", [64, 97, 1 << 22])
@pytest.mark.parametrize("seed", range(5))
def test_search_finds_every_marker_at_both_phases(monkeypatch: pytest.MonkeyPatch, seed: int, chunk: int) -> None:
    monkeypatch.setattr(markers, "CHUNK", chunk)
    (first, second), at = scattered(seed)
    seen = find_markers((first, second), ALPHABETS[0], 0, len(at))
    assert np.array_equal(seen.lowest, at * 8)
    assert seen.highest is seen.lowest
    assert seen.hits == len(at)


def test_search_tells_lowest_from_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "CHUNK", 50)
    (first, second), at = scattered(1)
    twice = np.concatenate([first, first[5:]]), np.concatenate([second, second[5:]])
    inside = at >= 5
    seen = find_markers(twice, ALPHABETS[0], 0, len(at))
    assert np.array_equal(seen.lowest, at * 8)
    assert np.array_equal(seen.highest[inside], 8 * (at[inside] + len(first) - 5))
    assert np.array_equal(seen.highest[~inside], 8 * at[~inside])
    assert seen.hits == len(at) + np.count_nonzero(inside)


def test_search_refuses_other_sizes_and_foreign_numbers() -> None:
    (first, second), at = scattered(2)
    with pytest.raises(DecodeRefused, match=r"differ in size \(expected 4000, found 3999\)"):
        find_markers((first, second[:-1]), ALPHABETS[0], 0, len(at))
    with pytest.raises(
        DecodeRefused, match=r"no element of this engine carries.*numbers 0 to 148, found 149"
    ) as caught:
        find_markers((first, second), ALPHABETS[0], 0, len(at) - 1)
    assert caught.value.offset == at[-1]
