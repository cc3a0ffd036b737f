"""`engineset locate` on whole networks: arrays of any axes, absent elements, bias entries; against a blob written here."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from layouts.algebra import Digit, Layout, Piece
from layouts.scales import Scales
from layouts.sidecar import write_layout
from layouts.stored import Bias, Copy, EngineLayout, Plane, Rect, StoredTensor
from pipeline.cli.locate import locate
from pipeline.container.blob import weight_blob
from pipeline.errors import LayoutError
from tests.helpers.rknn_file import CONSTANT, S8, Graph, Tensor, write_rknn

DIMS, ORDER = (4, 6, 1, 3), (0, 3, 2, 1)
ROWS, COLS = 4, 18
WEIGHT, BIAS, PLAIN = "encoder.0.conv.weight", "encoder.0.conv.bias", "decoder.rnn.bias_hh"
BASE, STEP, ENTRIES, BIASES, VECTOR = 16, 32, 200, 220, 300
ABSENT = 6


def piece(row: int, col: int, rows: int, cols: int, byte: int, step: int, width: int) -> Piece:
    return Piece(row, col, Layout((rows, cols), 8 * byte, (Digit(rows, 8 * step),), (Digit(cols, width),), width))


def model(blob: str = "body", size: int = 400, offset: int = 64) -> EngineLayout:
    """Rows of 18 bytes without their first 6 columns (the first tap), an entry and a bias for each row, a vector."""
    copy = Copy(
        "only",
        (Plane((piece(0, ABSENT, ROWS, COLS - ABSENT, BASE, STEP, 8),)),),
        Plane((piece(0, 0, ROWS, 1, ENTRIES, 4, 32),)),
        Plane((piece(0, 0, ROWS, 1, BIASES, 4, 32),)),
        (Rect(0, 0, ROWS, ABSENT),),
    )
    scales, bias = Scales("fp32", COLS, 127.5, False, 0.5, 1e-10), Bias(BIAS, "int32", 0.25, 3)
    weight = StoredTensor(WEIGHT, (ROWS, COLS), "s8", (copy,), scales, bias=bias, dims=DIMS, order=ORDER)
    plane = Plane((piece(0, 0, 1, 9, VECTOR, 0, 32),))
    return EngineLayout(
        "model", blob, size, (weight, StoredTensor(PLAIN, (1, 9), "fp32", (Copy("only", (plane,)),))), offset
    )


@pytest.fixture
def sidecar(tmp_path: Path) -> Path:
    write_layout(tmp_path / "m.layout.toml", model())
    return tmp_path / "m.layout.toml"


def answer(*arguments: object) -> Result:
    return CliRunner().invoke(locate, [str(argument) for argument in arguments])


def found(*arguments: object) -> dict[str, Any]:
    result = answer(*arguments, "--json")
    assert result.exit_code == 0, result.exception
    return dict(json.loads(result.stdout))


def test_every_index_of_the_array_is_its_element_of_the_matrix(sidecar: Path) -> None:
    q = np.arange(ROWS * COLS).reshape(DIMS)
    matrix = q.transpose(ORDER).reshape(ROWS, COLS)
    for index in list(product(*map(range, DIMS)))[::5]:
        by_index = found(sidecar, WEIGHT, *index)
        row, col = by_index["row"], by_index["col"]
        assert matrix[row, col] == q[index]
        assert by_index["index"] == list(index)
        assert found(sidecar, WEIGHT, row, col) == by_index
        if col < ABSENT:
            assert (by_index["places"], by_index["absent"]) == ([], ["only"])
        else:
            (place,) = by_index["places"]
            assert (place["byte"], place["width"]) == (64 + BASE + STEP * row + col - ABSENT, 8)
            assert by_index["absent"] == []


def test_bias_is_shown_with_the_weight_and_by_its_name(sidecar: Path) -> None:
    (with_weight,) = found(sidecar, WEIGHT, 2, 9)["bias"]
    assert (with_weight["byte"], with_weight["width"], with_weight["plane"]) == (64 + BIASES + 8, 32, "bias")
    (scale,) = found(sidecar, WEIGHT, 2, 9)["scale"]
    assert scale["byte"] == 64 + ENTRIES + 8
    for index in ([2], [0, 2], [2, 0]):
        by_name = found(sidecar, BIAS, *index)
        assert (by_name["bias"], by_name["weights"], by_name["codec"]) == ([with_weight], [WEIGHT], "int32")
        assert by_name["places"] == []


def test_vector_takes_one_index(sidecar: Path) -> None:
    (place,) = found(sidecar, PLAIN, 7)["places"]
    assert place["byte"] == 64 + VECTOR + 28
    assert found(sidecar, PLAIN, 7) == found(sidecar, PLAIN, 0, 7) == found(sidecar, PLAIN, 7, 0)


def test_text_says_what_is_not_stored(sidecar: Path) -> None:
    lines = answer(sidecar, WEIGHT, 1, 2, 0, 0).stdout.splitlines()
    assert lines[0] == f"{WEIGHT} [1, 2, 0, 0]  s8  stored as [1, 2]"
    assert lines[2].split() == ["only", "value", "not", "stored"]
    assert [line.split()[1] for line in lines[3:5]] == ["scale", "bias"]
    assert "bias of row 1" in lines[-1]
    assert answer(sidecar, BIAS, 1).stdout.splitlines()[-1] == f"bias of row 1 of {WEIGHT}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((WEIGHT, 4, 0, 0, 0), "outside the tensor (expected ROW 0 to 3, COL 0 to 17, or indices below 4x6x1x3"),
        ((WEIGHT, 0, 0, 1, 0), "found 0 0 1 0)"),
        ((WEIGHT, 0, 0, 0), "found 0 0 0)"),
        ((WEIGHT, 0), "found 0)"),
        ((WEIGHT, 0, 18), "found 0 18)"),
        ((BIAS, 4), "outside the tensor (expected INDEX 0 to 3, found 4)"),
        ((BIAS, 1, 1), "found 1 1)"),
        ((PLAIN, 9), "COL 0 to 8, found 0 9)"),
        (("encoder.0.weight", 0), f"no such tensor in the layout (expected {WEIGHT}"),
        (("model.layers.3." + WEIGHT, 0, 0), "no such tensor"),
    ],
)
def test_refusals_are_one_line(sidecar: Path, arguments: tuple[object, ...], line: str) -> None:
    error = answer(sidecar, *arguments).exception
    assert isinstance(error, LayoutError)
    assert line in str(error)
    assert "\n" not in str(error)


def test_offset_is_taken_from_an_rknn(tmp_path: Path) -> None:
    data = bytes(range(200))
    engine = write_rknn(tmp_path / "m.rknn", Graph([Tensor("w", S8, CONSTANT, [200], [200], data)]))
    blob = weight_blob(engine)
    write_layout(tmp_path / "m.layout.toml", model(blob.name, blob.size, 9_000))
    shutil.copyfile(engine, tmp_path / "copy")
    places = found(tmp_path / "m.layout.toml", WEIGHT, 1, 9, "--engine", tmp_path / "copy")["places"]
    assert [place["byte"] for place in places] == [64 + BASE + STEP + 9 - ABSENT]
