"""Integer engines that no compiler of ours has written, and everything that makes a decode refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layouts.algebra import parse_piece
from layouts.confirm import confirm
from layouts.errors import DecodeRefused
from layouts.sidecar import dump_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.marked_integers import BIAS, FOUR, GROUP, NORM, ROW, UP, IntegerToy, eight, plane

ROWS, COLS = 40, 300
SHAPE = (ROWS, COLS)
PITCH = 4 * COLS
CHUNKED = 9 * 36 * 16
TILES = (
    f"at 0,0  [{ROWS},256]  rows {ROWS}:512  cols (128,2):(4,{512 * ROWS})  width 4  base {{}}",
    f"at 0,256  [{ROWS},44]  rows {ROWS}:176  cols 44:4  width 4  base {{}}",
)
FREE = 69_000


def whole(base: int, row: int = PITCH, col: int = 4, low_bit: int = 0) -> Plane:
    return plane(
        low_bit,
        8 if low_bit else 0,
        f"at 0,0  [{ROWS},{COLS}]  rows {ROWS}:{row}  cols {COLS}:{col}  width 4  base {base}",
    )


def entries(base: int) -> Plane:
    return plane(0, 0, f"at 0,0  [{ROWS},2]  rows {ROWS}:64  cols 2:32  width 32  base {base}")


def tiles(base: int, low_bit: int) -> Plane:
    return plane(low_bit, 8 if low_bit else 0, TILES[0].format(base), TILES[1].format(base + 1024 * ROWS))


def chunks(base: int, low_bit: int) -> Plane:
    text = f"at 0,0  [{ROWS},{COLS}]  rows {ROWS}:{CHUNKED}  cols (36,9):(4,576)  width 4  base {base}"
    return plane(low_bit, 8 if low_bit else 0, text)


def two_areas(base: int) -> tuple[Plane, Plane, Plane]:
    return whole(base), whole(base + 60_000, low_bit=4), entries(base + 120_000)


MATRICES = {
    "planes apart": eight(SHAPE, ROW, two_areas(800)),
    "scales of groups": eight(SHAPE, GROUP, two_areas(800)),
    "rows side by side": eight(SHAPE, ROW, (whole(800, 4, 320), whole(960, 4, 320, 4), entries(160_000))),
    "plain bytes": eight(SHAPE, ROW, (whole(800, 2400, 8), whole(804, 2400, 8, 4), entries(160_000))),
    "narrower last tile": eight(SHAPE, ROW, (tiles(800, 0), tiles(80_000, 4), entries(160_000))),
    "copied as a whole": eight(SHAPE, GROUP, two_areas(800), two_areas(200_000)),
    "copies chunk by chunk": eight(
        SHAPE,
        ROW,
        (chunks(800, 0), chunks(944, 4), entries(400_000)),
        (chunks(1088, 0), chunks(1232, 4), entries(408_000)),
    ),
    "four bits": StoredTensor(
        UP,
        SHAPE,
        "s4",
        (
            Copy(
                "decode",
                (plane(0, 8, f"at 0,0  [{ROWS},{COLS}]  rows {ROWS}:{PITCH}  cols {COLS}:4  width 4  base 800"),),
                plane(0, 0, f"at 0,0  [{ROWS},3]  rows {ROWS}:16  cols 3:{16 * ROWS}  width 16  base 80000"),
            ),
        ),
        FOUR,
    ),
}


def vector(name: str, count: int, base: int, codec: str = "bf16", width: int = 16) -> StoredTensor:
    layout = parse_piece(f"at 0,0  [1,{count}]  rows 1:0  cols {count}:{2 * width}  width {width}  base {base}")
    return StoredTensor(name, (1, count), codec, (Copy("decode", (Plane((layout,)),)),))


def engine(matrix: StoredTensor, norm: str = "bf16") -> EngineLayout:
    bias = vector(BIAS, 50, 530_000)
    if norm == "folded":
        tensors = (replace(matrix, folded=NORM), bias)
    else:
        tensors = (matrix, bias, vector(NORM, COLS, 500_008, norm, {"bf16": 16, "fp32": 32}[norm]))
    return EngineLayout("layer", "npu_params", FREE + 1000, tensors)


@pytest.mark.parametrize("norm", ["bf16", "fp32", "folded"])
@pytest.mark.parametrize("corrections", [0, 46])
@pytest.mark.parametrize("name", MATRICES)
def test_decode_finds_the_layout_to_the_letter(name: str, corrections: int, norm: str) -> None:
    layout = engine(MATRICES[name], norm)
    if layout.tensors[0].codec == "s4" and corrections:
        corrections = 10
    assert dump_layout(IntegerToy(layout, corrections).decode()) == dump_layout(layout)


@pytest.fixture
def toy() -> IntegerToy:
    return IntegerToy(engine(MATRICES["scales of groups"]), corrections=20)


def test_confirm_counts_corrected_elements(toy: IntegerToy) -> None:
    layout = toy.decode()
    assert confirm(layout, toy.builds, toy.builds[-1], toy.known) == {UP: 20, BIAS: 0, NORM: 0}


def test_too_many_corrected_elements_are_refused() -> None:
    limit = ROWS * COLS // 256
    with pytest.raises(DecodeRefused, match=rf"{UP} decode copy: {limit + 1} elements one step off, at most {limit}"):
        IntegerToy(engine(MATRICES["planes apart"]), corrections=limit + 1).decode()


@pytest.mark.parametrize("what", ["an element by two steps", "an entry by one unit", "a byte beside"])
def test_what_the_confirming_build_does_not_explain(toy: IntegerToy, what: str) -> None:
    stored = toy.layout[UP]
    places = {
        "an element by two steps": int(stored.copies[0].planes[1].addresses(7, 8)[0, 9]) // 8,
        "an entry by one unit": int(stored.copies[0].entries.addresses(7, 8)[0, 1]) // 8,  # type: ignore[union-attr]
        "a byte beside": FREE + 11,
    }
    toy.builds[-1][places[what]] ^= 2
    message = {
        "an element by two steps": rf"{UP}",
        "an entry by one unit": rf"{UP}",
        "a byte beside": rf"1 weight-dependent bytes.*{FREE + 11}",
    }
    with pytest.raises(DecodeRefused, match=message[what]):
        toy.decode()


def test_missing_elements_are_counted(toy: IntegerToy) -> None:
    at = toy.layout[UP].copies[0].planes[0].addresses(5, 6)[0, 20:24] // 8
    for build in toy.builds:
        build[at] = 0
    with pytest.raises(DecodeRefused, match=rf"{UP}"):
        toy.decode()


def test_builds_of_another_size(toy: IntegerToy) -> None:
    toy.builds[2] = toy.builds[2][:-1]
    with pytest.raises(DecodeRefused, match=r"build 2: marker builds differ in size \(expected 70000, found 69999\)"):
        toy.decode()


def test_an_engine_without_its_norm(toy: IntegerToy) -> None:
    at = toy.layout[NORM].copies[0].planes[0].addresses(0, 1)[0] // 8
    for build in toy.builds:
        build[at] = build[at + 1] = 0
    with pytest.raises(DecodeRefused, match=rf"neither stored nor folded: {NORM}"):
        toy.decode()


@pytest.mark.parametrize("seed", range(20))
def test_damaged_builds_never_give_another_layout(seed: int) -> None:
    toy, random = IntegerToy(engine(MATRICES["copied as a whole"])), np.random.default_rng(seed)
    for _ in range(1 + seed % 3):
        build, at = random.integers(len(toy.builds)), random.integers(FREE)
        toy.builds[build][at] ^= random.integers(1, 256, dtype=np.uint8)
    try:
        found = toy.decode()
    except DecodeRefused:
        return
    assert dump_layout(found) == dump_layout(toy.layout)


def test_swapped_builds_are_refused(toy: IntegerToy) -> None:
    toy.builds[0], toy.builds[2] = toy.builds[2], toy.builds[0]
    with pytest.raises(DecodeRefused):
        toy.decode()
