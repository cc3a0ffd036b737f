"""What `engineset locate` prints, against the bits that an own writer put into a file, one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from layouts.algebra import Digit, Layout, Piece
from layouts.scales import Scales
from layouts.sidecar import write_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.cli.locate import locate
from pipeline.errors import EngineSetError, LayoutError, MismatchError, SidecarError

OFFSET = 1_570
ROWS, COLS, GROUP = 33, 37, 16
MATRIX, NORM, FLOAT = "mlp.up_proj.weight", "input_layernorm.weight", "self_attn.o_proj.weight"


def grid(base: int, width: int, row_stride: int, col_stride: int, rows: int = ROWS, cols: int = COLS) -> Piece:
    layout = Layout((rows, cols), base, (Digit(rows, row_stride),), (Digit(cols, col_stride),), width)
    return Piece(0, 0, layout)


def matrix_copy(name: str, base: int, first: int, stop: int) -> Copy:
    """Rows of 40 nibbles fine, 40 coarse, then three entries of 4 bytes."""
    stride, rows = 8 * (20 + 20 + 12), stop - first

    def plane(at: int, width: int, step: int, cols: int) -> tuple[Piece, ...]:
        return (Piece(first, 0, grid(base + at, width, stride, step, rows, cols).layout),)

    planes = (Plane(plane(160, 4, 4, COLS), 4, 4, 8), Plane(plane(0, 4, 4, COLS), 0, 4, 0))
    return Copy(name, planes, Plane(plane(320, 32, 32, 3)))


def engine(shared: bool = False) -> EngineLayout:
    copies = (matrix_copy("decode", 8 * 100, 0, ROWS), matrix_copy("prefill", 8 * 4001, 3, 17))
    tensors = (
        StoredTensor(MATRIX, (ROWS, COLS), "s8", copies, Scales("reciprocal", GROUP, 127.0, shared)),
        StoredTensor(NORM, (1, COLS), "bf16", (Copy("decode", (Plane((grid(8 * 9001, 16, 16, 32, 1),)),)),)),
        StoredTensor(FLOAT, (ROWS, COLS), "fp32", (Copy("decode", (Plane((grid(8 * 12003, 32, 32, 2048),)),)),)),
    )
    return EngineLayout("layer", "npu_params", 30_000, tensors, OFFSET)


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    write_layout(tmp_path / "layer.layout.toml", engine())
    return tmp_path / "layer.layout.toml"


def answer(*arguments: object) -> Result:
    return CliRunner().invoke(locate, [str(argument) for argument in arguments])


def found(*arguments: object) -> dict[str, Any]:
    result = answer(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return dict(json.loads(result.stdout))


def refusal(kind: type[EngineSetError], *arguments: object) -> str:
    result = answer(*arguments)
    assert isinstance(result.exception, kind), result.output
    assert result.stdout == ""
    return str(result.exception)


def bits_at(data: bytes, byte: int, bit: int, width: int) -> int:
    return (int.from_bytes(data[byte : byte + 9], "little") >> bit) & ((1 << width) - 1)


def test_every_place_of_every_element_holds_its_bits(sidecar: Path) -> None:
    """The file is written here from the description in `matrix_copy`, nibble by nibble."""
    q = np.random.default_rng(1).integers(-128, 128, (ROWS, COLS))
    data = bytearray(OFFSET + 30_000)
    for base, first, stop in ((100, 0, ROWS), (4001, 3, 17)):
        for row in range(first, stop):
            start = OFFSET + base + 52 * (row - first)
            for col in range(COLS):
                data[start + col // 2] |= (int(q[row, col]) & 15) << 4 * (col % 2)
                data[start + 20 + col // 2] |= ((int(q[row, col]) >> 4) + 8) << 4 * (col % 2)
            for group in range(3):
                data[start + 40 + 4 * group : start + 44 + 4 * group] = (1000 * row + group + 1).to_bytes(4, "little")
    for row, col in [(0, 0), (2, 36), (3, 1), (16, 15), (16, 16), (17, 35), (32, 36)]:
        places = found(sidecar, MATRIX, row, col)
        held = {(p["copy"], p["plane"]): p for p in places["places"]}
        copies = ["decode", "prefill"] if 3 <= row < 17 else ["decode"]
        assert list(held) == [(copy, plane) for copy in copies for plane in ("fine", "coarse")]
        for copy in copies:
            value = 0
            for plane in ("fine", "coarse"):
                place = held[copy, plane]
                field = bits_at(data, place["byte"], place["bit"], place["width"])
                value += (field - place["bias"]) << place["low_bit"]
            assert value == q[row, col]
        assert [entry["copy"] for entry in places["scale"]] == copies
        for entry in places["scale"]:
            assert (entry["plane"], entry["row"], entry["group"], entry["width"]) == ("scale", row, col // GROUP, 32)
            assert bits_at(data, entry["byte"], entry["bit"], 32) == 1000 * row + col // GROUP + 1


def test_floats_have_one_plane_and_no_scale(sidecar: Path) -> None:
    places = found(sidecar, FLOAT, 5, 6)
    place = {"copy": "decode", "plane": "value", "byte": OFFSET + 12003 + 20 + 1536, "bit": 0, "width": 32}
    assert places == {
        "tensor": FLOAT,
        "row": 5,
        "col": 6,
        "index": [5, 6],
        "codec": "fp32",
        "places": [place | {"low_bit": 0, "bias": 0}],
        "absent": [],
        "scale": [],
        "bias": [],
    }


def test_element_of_a_vector_by_either_index(sidecar: Path) -> None:
    (place,) = found(sidecar, NORM, 0, 7)["places"]
    assert (place["byte"], place["width"]) == (OFFSET + 9001 + 28, 16)
    assert found(sidecar, NORM, 7, 0) == found(sidecar, NORM, 0, 7)


def test_checkpoint_name_is_that_of_the_layer(sidecar: Path) -> None:
    assert found(sidecar, f"model.layers.13.{MATRIX}", 5, 6) == found(sidecar, MATRIX, 5, 6)


def test_text_says_whether_entries_can_be_told_apart(tmp_path: Path) -> None:
    for shared, words in ((True, "one class"), (False, "an entry for each group")):
        write_layout(tmp_path / "a.layout.toml", engine(shared))
        lines = answer(tmp_path / "a.layout.toml", MATRIX, 4, 20).stdout.splitlines()
        assert lines[1].split() == ["copy", "plane", "byte", "bit", "width"]
        assert [line.split()[:2] for line in lines[2:8]] == [
            [copy, plane] for copy, plane in [("decode", "fine"), ("decode", "coarse"), ("prefill", "fine")]
        ] + [["prefill", "coarse"], ["decode", "scale"], ["prefill", "scale"]]
        assert words in lines[8] and "group 1" in lines[8]


def test_offset_is_taken_from_an_engine(sidecar: Path, tmp_path: Path) -> None:
    (tmp_path / "embedding.bin").write_bytes(bytes(30_000))
    moved = found(sidecar, MATRIX, 4, 20, "--engine", tmp_path / "embedding.bin")
    plain = found(sidecar, MATRIX, 4, 20)
    for key in ("places", "scale"):
        assert [p["byte"] + OFFSET for p in moved[key]] == [p["byte"] for p in plain[key]]
    (tmp_path / "other.bin").write_bytes(bytes(29_999))
    line = refusal(MismatchError, sidecar, MATRIX, 4, 20, "--engine", tmp_path / "other.bin")
    assert line.endswith("other.bin: embedding: not an engine of this layout (expected 30000, found 29999)")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((MATRIX, 33, 0), f"{MATRIX}: outside the tensor (expected ROW 0 to 32, COL 0 to 36, found 33 0)"),
        ((MATRIX, 0, 37), f"{MATRIX}: outside the tensor (expected ROW 0 to 32, COL 0 to 36, found 0 37)"),
        ((NORM, 37, 0), f"{NORM}: outside the tensor (expected ROW 0 to 0, COL 0 to 36, found 0 37)"),
        ((NORM, 1, 1), f"{NORM}: outside the tensor (expected ROW 0 to 0, COL 0 to 36, found 1 1)"),
        (("mlp.up.weight", 0, 0), f"mlp.up.weight: no such tensor in the layout (expected {MATRIX}"),
    ],
)
def test_refusals_are_one_line(sidecar: Path, arguments: tuple[object, ...], line: str) -> None:
    found = refusal(LayoutError, sidecar, *arguments)
    assert found.startswith(f"{sidecar}: {line}")
    assert "\n" not in found


def test_what_is_no_sidecar(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\x00" * 80)
    for name in ("binary", "absent"):
        assert str(refusal(SidecarError, tmp_path / name, MATRIX, 0, 0)).startswith(f"{tmp_path / name}: ")
