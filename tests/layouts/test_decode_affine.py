"""Engines of bytes with zero points: layouts written by hand, their marker builds, and what makes the decode refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from layouts.algebra import parse_piece
from layouts.byte_markers import BUILDS, ByteMarkers
from layouts.decode_affine import Part, Rule, decode_affine_engine, scale_range, with_rules
from layouts.encoding import encode_rows
from layouts.errors import DecodeRefused
from layouts.markers import number_tensors
from layouts.sidecar import dump_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import write_tensor

SHAPES = {"a": (20, 40), "wide": (9, 2984)}
PARTS = [Part("a", "a", 0, 40), Part("wide/run0", "wide", 0, 1600), Part("wide/run1", "wide", 1600, 2984)]
PADDING = {"a": 8, "wide/run0": 0, "wide/run1": 8}
BIASES = {"a": "a.bias", "wide/run0": "", "wide/run1": "wide.bias"}
SIZE = 40_000
Blob = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


def plane(*pieces: str) -> Plane:
    return Plane(tuple(parse_piece(piece) for piece in pieces))


def stored(name: str, rows: int, cols: int, base: int) -> StoredTensor:
    """Tiles of 32 columns, the padding behind the last of them; entries and biases of 8 rows together in front."""
    wide, padding = cols // 32 * 32, PADDING[name]
    rest = cols - wide
    tile = 256 * rows
    places = [
        f"at 0,0  [{rows},{wide}]  rows {rows}:256  cols (32,{wide // 32}):(8,{tile})  width 8  base {base + 8192}"
    ]
    last, step = base + 8192 + wide // 32 * tile, 8 * (rest + padding)
    if rest:
        places.append(f"at 0,{wide}  [{rows},{rest}]  rows {rows}:{step}  cols {rest}:8  width 8  base {last}")
    if padding:
        places.append(
            f"at 0,{cols}  [{rows},{padding}]  rows {rows}:{step}  cols {padding}:8  width 8  base {last + 8 * rest}"
        )
    groups = -(-rows // 8)
    entries = [
        f"at 0,{col}  [{rows},1]  rows (8,{groups}):(16,512)  cols 1:0  width 16  base {base + 384 - 128 * col}"
        for col in (0, 1)
    ]
    bias = f"at 0,0  [{rows},1]  rows (8,{groups}):(32,512)  cols 1:0  width 32  base {base}"
    rule = Rule(1.0, 0.5, 0.1, 3, BIASES[name])
    copy = Copy("decode", (plane(*places),), plane(*entries), plane(bias))
    scales = rule.scales(cols + padding)
    return StoredTensor(name, (rows, cols + padding), "s8", (copy,), scales, bias=rule.beside(), padding=padding)


class Toy:
    """Nine builds whose bytes a test may change before `decode`."""

    def __init__(self) -> None:
        self.markers = ByteMarkers(number_tensors(SHAPES.items()))
        tensors = (
            stored("a", 20, 40, 0),
            stored("wide/run0", 9, 1600, 8 * 2_400),
            stored("wide/run1", 9, 1384, 8 * 20_000),
        )
        self.layout = EngineLayout("model", "body", SIZE, tensors)
        constant = np.random.default_rng(4).integers(0, 256, SIZE, np.uint8)
        self.builds: list[Blob] = [constant.copy() for _ in range(BUILDS + 1)]
        for build, blob in enumerate(self.builds):
            rules = {part.name: self.rule(part.name, build) for part in PARTS}
            for tensor in with_rules(self.layout, rules).tensors:
                part = next(part for part in PARTS if part.name == tensor.name)
                values = np.pad(self.values(part, build), ((0, 0), (0, tensor.padding)))
                bias = self.bias(part.matrix, build) if BIASES[part.name] else None
                write_tensor(blob, tensor, encode_rows(tensor, values, bias=bias))

    def values(self, part: Part, build: int) -> np.ndarray:
        return self.matrix(part.matrix, build)[:, part.first : part.stop]

    def matrix(self, name: str, build: int) -> np.ndarray:
        if build == BUILDS:
            return np.random.default_rng(len(name)).normal(size=SHAPES[name]).astype(np.float32)
        return self.markers.values(name, build, slice(0, SHAPES[name][0]))

    def bias(self, name: str, build: int) -> np.ndarray:
        if build == BUILDS:
            return np.linspace(-1, 1, SHAPES[name][0]).astype(np.float32)
        return self.markers.bias(name, build)

    def rule(self, name: str, build: int) -> Rule:
        part = next(part for part in PARTS if part.name == name)
        return Rule(*scale_range(self.values(part, build)), 0.02 + build / 977, build - 4, BIASES[name])

    def known(self, name: str, rows: slice) -> np.ndarray:
        return (
            self.bias(name.removesuffix(".bias"), BUILDS)[None]
            if name.endswith(".bias")
            else self.matrix(name, BUILDS)[rows]
        )

    def decode(self) -> EngineLayout:
        weights = [slice(0, SIZE)]
        return decode_affine_engine(
            "model", ("body", 0), self.builds, self.markers, self.rule, self.known, PARTS, weights
        )


@pytest.fixture
def toy() -> Toy:
    return Toy()


def test_every_place_to_the_letter(toy: Toy) -> None:
    rules = {part.name: toy.rule(part.name, BUILDS) for part in PARTS}
    assert dump_layout(toy.decode()) == dump_layout(with_rules(toy.layout, rules))


def _lost_element(toy: Toy) -> None:
    toy.builds[3][int(toy.layout["a"].copies[0].planes[0].addresses(4, 5)[0, 7]) // 8] ^= 1


def _lost_padding(toy: Toy) -> None:
    toy.builds[5][int(toy.layout["a"].copies[0].planes[0].addresses(4, 5)[0, 44]) // 8] ^= 1


def _lost_entry(toy: Toy) -> None:
    entries = toy.layout["wide/run1"].copies[0].entries
    assert entries is not None
    toy.builds[0][int(entries.addresses(2, 3)[0, 1]) // 8] ^= 1


def _wrong_confirming_element(toy: Toy) -> None:
    toy.builds[BUILDS][int(toy.layout["wide/run0"].copies[0].planes[0].addresses(1, 2)[0, 70]) // 8] ^= 1


def _unexplained(toy: Toy) -> None:
    toy.builds[2][SIZE - 5] ^= 4


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_lost_element, "a: 1 of 800 elements, first \\[4, 7\\]"),
        (_lost_padding, "a\\[4\\].*differing numbers of places"),
        (_lost_entry, "wide/run1\\[2\\].*differing numbers of places"),
        (_wrong_confirming_element, "build 8.*one step from what the rule gives|not the known weights"),
        (_unexplained, "1 weight-dependent bytes belong to no tensor"),
    ],
)
def test_damage_is_refused(toy: Toy, damage: Callable[[Toy], None], words: str) -> None:
    damage(toy)
    with pytest.raises(DecodeRefused, match=words):
        toy.decode()


def test_rows_of_one_element_tell_too_little() -> None:
    markers = ByteMarkers(number_tensors([("n", (600, 1))]))
    part = Part("n", "n", 0, 1)

    def rule(_: str, build: int) -> Rule:
        return Rule(*scale_range(markers.values("n", min(build, BUILDS - 1), slice(0, 600))), 0.1, 0)

    builds = [np.zeros(100, np.uint8)] * (BUILDS + 1)
    with pytest.raises(DecodeRefused, match="too few in a row"):
        decode_affine_engine("model", ("body", 0), builds, markers, rule, lambda *_: None, [part], [])  # type: ignore[arg-type,return-value]
