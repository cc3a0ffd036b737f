"""Where the vectors of an integer engine stand: words over all builds; values of the last one for norms that may be folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from layouts.codecs import Float32, codec
from layouts.digits import Int64
from layouts.errors import DecodeRefused
from layouts.markers import NOT_FOUND, U16, Alphabet, Blob, Sightings

ONE = np.uint16(0x3F80)
CHUNK = 1 << 19


def find_vectors(builds: Sequence[Blob], alphabet: Alphabet, elements: int) -> Sightings:
    """Places of numbered elements; even builds hold a marker's first value, odd ones its second."""
    lowest = np.full(elements, NOT_FOUND, np.int64)
    highest, hits = lowest.copy(), 0
    for start in range(0, builds[0].size, CHUNK):
        at, number = _hits(builds, alphabet, start, elements)
        new = lowest[number] == NOT_FOUND
        lowest[number[new][::-1]] = at[new][::-1] * 8
        highest[number] = at * 8
        hits += len(at)
    return Sightings(lowest, lowest if np.array_equal(lowest, highest) else highest, hits)


def _hits(builds: Sequence[Blob], alphabet: Alphabet, start: int, elements: int) -> tuple[Int64, Int64]:
    span = slice(start, start + CHUNK + 1)
    first = _words(builds[0][span])
    at = np.flatnonzero(alphabet.digits[first] >= 0)
    second = _words(builds[1][span])[at]
    number = alphabet.decode(first[at], second)
    known = (number >= 0) & (number < elements)
    at, number = at[known] + start, number[known]
    for build, blob in enumerate(builds[2:], 2):
        same = _word_at(blob, at) == alphabet.encode(number, build % 2)
        at, number = at[same], number[same]
    return at, number


def find_gains(builds: Sequence[Blob], confirming: Blob, gains: dict[str, Float32]) -> dict[str, list[Int64]]:
    """Gain -> places in bits of its elements, once for each time that it is stored.

    Parameters
    ----------
    builds : the marker builds, in which every element is 1
    gains : values of the confirming build, none of which is 1 in bf16

    Raises DecodeRefused for a gain that is stored more than twice.
    """
    at = np.concatenate(list(_ones(builds, confirming)))
    words, found, index = _word_at(confirming, at), {name: list[Int64]() for name in gains}, 0
    while index < len(at):
        name, order = _sequence(words[index:], gains)
        if order is None:  # whatever changes here is no gain: confirming lists it
            index += 1
            continue
        places = np.empty(len(order), np.int64)
        places[order] = at[index : index + len(order)] * 8
        found[name].append(places)
        index += len(order)
    for name, places_of in found.items():
        if len(places_of) > 2:
            raise DecodeRefused("a vector that is stored more than twice", where=name, found=len(places_of))
    return found


def _ones(builds: Sequence[Blob], confirming: Blob) -> Iterator[Int64]:
    """Bytes at which all builds read 1 as a bf16, and the confirming one does not."""
    for start in range(0, confirming.size, CHUNK):
        span = slice(start, start + CHUNK + 1)
        at = np.flatnonzero(_words(builds[0][span]) == ONE)
        for blob in builds[1:]:
            at = at[_word_at(blob, at + start) == ONE]
        yield at[_word_at(confirming, at + start) != ONE] + start


def _sequence(words: U16, gains: dict[str, Float32]) -> tuple[str, Int64 | None]:
    """The gain whose values the words begin with, and the order of its elements."""
    for name, values in gains.items():
        head = words[: values.size]
        if len(head) < values.size:
            continue
        nearest, truncated = (codec(kind).encode(values.ravel()) for kind in ("bf16", "bf16_truncated"))
        for order in _orders(values.size):
            if head[0] in (nearest[order[0]], truncated[order[0]]) and (
                np.array_equal(head, nearest[order]) or np.array_equal(head, truncated[order])
            ):
                return name, order
    return "", None


def _orders(count: int) -> Iterator[Int64]:
    """Orders in which elements may ascend through memory: as they are, backwards, and with two digits exchanged."""
    order = np.arange(count)
    yield order
    yield order[::-1]
    for inner in range(2, count // 2 + 1):
        if count % inner == 0:
            yield order.reshape(-1, inner).T.ravel()


def _words(data: Blob) -> U16:
    low, high = data[:-1].astype(np.uint16), data[1:].astype(np.uint16)
    return low | (high << np.uint16(8))


def _word_at(blob: Blob, at: npt.NDArray[np.int64]) -> U16:
    words: U16 = blob[at].astype(np.uint16) | (blob[at + 1].astype(np.uint16) << np.uint16(8))
    return words
