"""Decoding a toy engine from its marker builds, and everything that makes a decode refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layouts.codecs import codec
from layouts.confirm import confirm
from layouts.errors import DecodeRefused
from layouts.markers import FP16_MIDDLE, choose_alphabet, number_tensors
from layouts.sidecar import dump_layout
from tests.helpers.marked import DOWN, FREE, NORM, SHAPES, UP, Toy, toy_layout


@pytest.mark.parametrize("kind", ["bf16", "bf16_truncated", "fp32"])
def test_decode_finds_the_layout_to_the_letter(kind: str) -> None:
    toy = Toy(toy_layout(kind))
    assert dump_layout(toy.decode()) == dump_layout(toy.layout)


def test_tensors_may_have_different_codecs() -> None:
    mixed = toy_layout("fp32", "bf16")
    toy = Toy(mixed)
    assert dump_layout(toy.decode()) == dump_layout(mixed)


def test_fp16_markers_beside_bf16_ones() -> None:
    """As in engines that hold fp16 matrices and fp32 biases: one numbering, one search."""
    mixed = toy_layout("fp16", "fp32")
    numbered = number_tensors(SHAPES.items())
    marked = tuple(replace(tensor, form="bf16" if tensor.name == NORM else "fp16") for tensor in numbered)
    toy = Toy(mixed, marked, choose_alphabet(1000, middle=FP16_MIDDLE))
    assert dump_layout(toy.decode()) == dump_layout(mixed)


@pytest.mark.parametrize("elements", [1000, 150_000_000, 266_000_000])
def test_values_of_fp16_alphabets_are_normal_numbers(elements: int) -> None:
    values = choose_alphabet(elements, middle=FP16_MIDDLE).values
    for kind in ("fp16", "bf16"):
        magnitudes = np.abs(codec(kind).decode(values).astype(np.float64))
        assert np.isfinite(magnitudes).all()
        assert magnitudes.min() >= 2.0**-14 if kind == "fp16" else 2.0**-126


def blank(toy: Toy, name: str, row: int, cols: slice, build: int = 0) -> None:
    for col in range(*cols.indices(toy.layout[name].shape[1])):
        at = toy.element(name, row, col)
        toy.builds[build][at : at + 2] = 0


@pytest.mark.parametrize("build", [0, 1])
def test_missing_elements_are_counted_by_tensor(build: int) -> None:
    toy = Toy(toy_layout())
    blank(toy, DOWN, 3, slice(10, 17), build)
    blank(toy, NORM, 0, slice(5, 6), build)
    with pytest.raises(DecodeRefused) as caught:
        toy.decode()
    line = str(caught.value)
    assert f"{DOWN}: 7 of 480 elements, first [3, 10]" in line
    assert f"{NORM}: 1 of 12 elements, first [0, 5]" in line
    assert UP not in line


def test_one_missing_element_of_a_copy_is_refused() -> None:
    toy = Toy(toy_layout())
    at = toy.element(UP, 20, 4, copy=1)
    for build in toy.builds:
        build[at : at + 2] = 0
    with pytest.raises(DecodeRefused, match=rf"stored twice in part|{UP}"):
        toy.decode()


def test_elements_stored_three_times() -> None:
    toy = Toy(toy_layout())
    at = toy.element(UP, 20, 4)
    for build in toy.builds:
        build[FREE : FREE + 2] = build[at : at + 2]
    with pytest.raises(DecodeRefused, match="more than twice"):
        toy.decode()


def test_shuffled_elements_follow_no_layout() -> None:
    toy = Toy(toy_layout())
    at = np.array([toy.element(DOWN, row, col) for row in range(12) for col in range(40)])
    order = np.random.default_rng(0).permutation(len(at))
    for build in toy.builds:
        for byte in (0, 1):
            build[at + byte] = build[at[order] + byte]
    with pytest.raises(DecodeRefused, match="no layout describes"):
        toy.decode()


def test_two_exchanged_elements_are_not_smoothed_over() -> None:
    """Two elements that changed places make more pieces, and never a layout that is wrong."""
    toy = Toy(toy_layout())
    a, b = toy.element(DOWN, 5, 7), toy.element(DOWN, 8, 30)
    for build in toy.builds:
        one, other = build[a : a + 2].copy(), build[b : b + 2].copy()
        build[a : a + 2], build[b : b + 2] = other, one
    plane = toy.decode()[DOWN].copies[0].planes[0]
    assert plane.addresses(5, 6)[0, 7] == 8 * b
    assert plane.addresses(8, 9)[0, 30] == 8 * a


@pytest.mark.parametrize("build", [1, 2])
def test_build_of_another_size(build: int) -> None:
    toy = Toy(toy_layout())
    toy.builds[build] = toy.builds[build][:-1]
    with pytest.raises(DecodeRefused, match="expected 8500, found 8499"):
        toy.decode()


def test_weight_dependent_bytes_outside_every_tensor_are_listed() -> None:
    """A checksum over the weights: bytes that differ between builds and that no element explains."""
    toy = Toy(toy_layout())
    for build in toy.builds:
        build[FREE : FREE + 4] = np.frombuffer(np.uint32(build[:FREE].sum() + 1).tobytes(), np.uint8)
        build[FREE + 100] = build[30]
    with pytest.raises(DecodeRefused, match=r"belong to no tensor, in runs that start at blob bytes 8000, 8100"):
        toy.decode()


def test_byte_that_only_the_confirming_build_changes_is_found() -> None:
    toy = Toy(toy_layout())
    toy.builds[2][FREE + 9] ^= 1
    with pytest.raises(DecodeRefused, match=r"1 weight-dependent bytes.*8009"):
        toy.decode()


def test_confirming_build_of_other_weights() -> None:
    toy = Toy(toy_layout())
    at = toy.element(DOWN, 0, 0)
    toy.builds[2][at : at + 960] = toy.builds[0][at : at + 960]
    with pytest.raises(DecodeRefused, match=rf"{DOWN}: no codec explains.*fp32 or bf16 or bf16_truncated"):
        toy.decode()


def test_rounding_that_changes_within_a_tensor() -> None:
    toy = Toy(toy_layout())
    truncated = codec("bf16_truncated").encode(toy.weights(UP, 2))
    for row, col in ((9, 3), (33, 11)):
        at = toy.element(UP, row, col)
        toy.builds[2][at : at + 2] = np.frombuffer(np.uint16(truncated[row, col] ^ 1).tobytes(), np.uint8)
    with pytest.raises(DecodeRefused, match=f"{UP}"):
        toy.decode()


def test_confirm_counts_elements_of_each_copy() -> None:
    toy = Toy(toy_layout())
    at = toy.element(UP, 17, 2, copy=1)
    toy.builds[2][at] ^= 1
    with pytest.raises(DecodeRefused, match=rf"{UP} prefill copy: 1 elements, first \[17, 2\]"):
        confirm(toy.layout, toy.builds, toy.builds[2], lambda name, rows: toy.weights(name, 2)[rows])
    toy.builds[2][at] ^= 1
    confirm(toy.layout, toy.builds, toy.builds[2], lambda name, rows: toy.weights(name, 2)[rows])


def test_constants_that_look_like_markers_are_not_found() -> None:
    """Bytes that are equal in both builds never match, whatever they hold."""
    toy = Toy(toy_layout())
    words = toy.alphabet.values[:20].astype("<u2").tobytes()
    for build in toy.builds:
        build[FREE + 1 : FREE + 41] = np.frombuffer(words, np.uint8)
    assert dump_layout(toy.decode()) == dump_layout(toy.layout)
