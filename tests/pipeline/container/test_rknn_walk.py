"""`.rknn` files by another writer: every tensor with its bytes; malformed ones refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.cli.inspect import inspect
from pipeline.container.blob import read_blob, weight_blob, weight_parts
from pipeline.errors import ContainerError, RknnError
from pipeline.refit.refitter import EngineRefitter
from pipeline.rknn.walk import walk_rknn
from tests.helpers.rknn_file import CONSTANT, FP16, FP32, INPUT, OUTPUT, S8, Graph, Tensor, write_rknn

WEIGHT = np.arange(20, dtype=np.float16).reshape(4, 5)


def graph(weight: bytes = WEIGHT.tobytes(), height: int = 8) -> Graph:
    tensors = [
        Tensor("", 0, 0, [], []),
        Tensor("conv.weight", FP16, CONSTANT, [4, 5, 1, 1], [1, 1, 1, 1, 4, 5], weight),
        Tensor("conv.bias", FP32, CONSTANT, [4], [4], np.arange(4, dtype=np.float32).tobytes()),
        Tensor("x", S8, INPUT, [1, 5, height, 8], [1, 1, height, 8, 16], scale=0.25, zero=-9, limits=(-30.0, 33.75)),
        Tensor("y", FP16, OUTPUT, [1, 4, height, 8], [1, 1, height, 8, 8]),
    ]
    return Graph(tensors, [("Conv", "Conv:c", [3, 1, 2], [4])])


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return write_rknn(tmp_path / "m.rknn", graph())


def test_every_tensor_with_its_bytes(engine: Path) -> None:
    walked, data = walk_rknn(engine), engine.read_bytes()
    written = graph()
    assert [(t.name, t.shape, t.stored_shape) for t in walked.tensors] == [
        (t.name, tuple(t.shape), tuple(t.stored)) for t in written.tensors
    ]
    for found, made in zip(walked.tensors, written.tensors, strict=True):
        assert (found.data is None) == (made.data == b"")
        if found.data:
            assert data[found.data.offset : found.data.stop] == made.data
            assert found.data.offset % 64 == 0
    kinds = [(t.kind, t.dtype) for t in walked.tensors[1:]]
    assert kinds == [("constant", "FP16"), ("constant", "FP32"), ("input", "S8"), ("output", "FP16")]
    assert (walked.tensors[3].scales, walked.tensors[3].zero_points) == ((0.25,), (-9,))
    assert walked.tensors[3].exact_scale == 0.25
    with pytest.raises(RknnError, match="'y'"):
        _ = walked.tensors[4].exact_scale
    (operator,) = walked.operators
    assert (operator.kind, operator.inputs, operator.outputs) == ("Conv", ("x", "conv.weight", "conv.bias"), ("y",))
    assert (walked.version, walked.target, walked.source) == (6, "rk3588", "ONNX")


def test_blob_is_the_flatbuffer_and_parts_are_constants(engine: Path, tmp_path: Path) -> None:
    data, blob = engine.read_bytes(), weight_blob(engine)
    assert (blob.offset, blob.size) == (64, int.from_bytes(data[16:24], "little"))
    assert read_blob(engine).tobytes() == data[64 : 64 + blob.size]
    assert {part.name for part in weight_parts(engine)} == {"conv.weight", "conv.bias"}
    assert weight_blob(engine.rename(tmp_path / "vision.bin")) == blob


def test_graphs_share_a_weight_and_keep_their_own_bias(tmp_path: Path) -> None:
    walked = walk_rknn(write_rknn(tmp_path / "m.rknn", graph(), graph(b"", 16)))
    assert [len(item.tensors) for item in walked.graphs] == [5, 5]
    assert sorted(tensor.name for tensor in walked.constants()) == ["conv.bias", "conv.bias", "conv.weight"]
    assert walked.graphs[1].tensors[1].data is None


def test_inspect_lists_tensors_under_any_name(engine: Path, tmp_path: Path) -> None:
    path = engine.rename(tmp_path / "model")
    described = json.loads(CliRunner().invoke(inspect, [str(path), "--json"]).stdout)
    (weight,) = (t for t in described["graphs"][0]["tensors"] if t["name"] == "conv.weight")
    assert path.read_bytes()[weight["offset"] :][: weight["bytes"]] == WEIGHT.tobytes()
    shown = CliRunner().invoke(inspect, [str(path)]).stdout
    assert "conv.weight" in shown
    assert "Conv:c" in shown


def test_refit_is_the_file_with_other_weights(engine: Path, tmp_path: Path) -> None:
    part = next(part for part in weight_parts(engine) if part.name == "conv.weight")
    digits = (Digit(4, 80),), (Digit(5, 16),)
    piece = Piece(0, 0, Layout((4, 5), 8 * (part.offset - 64), *digits, 16))
    stored = StoredTensor("conv.weight", (4, 5), "fp16", (Copy("decode", (Plane((piece,)),)),))
    blob = weight_blob(engine)
    layout = EngineLayout("model", blob.name, blob.size, (stored,), blob.offset)
    with EngineRefitter(engine, layout, tmp_path / "new.rknn") as refitter:
        refitter.set("conv.weight", 3 - WEIGHT.astype(np.float32))
        refitter.commit()
    expected = write_rknn(tmp_path / "expected.rknn", graph((3 - WEIGHT).tobytes()))
    assert (tmp_path / "new.rknn").read_bytes() == expected.read_bytes()


def outcome(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    try:
        walked = walk_rknn(path)
    except ContainerError as error:
        line = str(error)
        assert path.name in line
        assert "\n" not in line
        return line
    for tensor in walked.tensors:
        assert tensor.data is None or 64 <= tensor.data.offset <= tensor.data.stop <= len(data)
    return "walked"


def test_truncated_at_every_byte(engine: Path, tmp_path: Path) -> None:
    data = engine.read_bytes()
    assert all(outcome(tmp_path / "cut.rknn", data[:stop]) != "walked" for stop in range(len(data)))


def test_every_byte_changed(engine: Path, tmp_path: Path) -> None:
    data = engine.read_bytes()
    for at in range(len(data)):
        for value in (0x00, 0x7F, 0xFF):
            outcome(tmp_path / "changed.rknn", data[:at] + bytes([value]) + data[at + 1 :])


@settings(max_examples=200)
@given(st.data())
def test_words_overwritten(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = bytearray(write_rknn(folder / "whole.rknn", graph()).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = 4 * data.draw(st.integers(2, len(whole) // 4 - 1))
        whole[at : at + 4] = data.draw(st.integers(0, 2**32 - 1) | st.integers(0, 999)).to_bytes(4, "little")
    outcome(folder / "words.rknn", bytes(whole))


def test_lists_that_name_one_table_many_times(tmp_path: Path) -> None:
    """Billions of tensors in a file of kilobytes."""
    one = Graph([Tensor("t", FP16, INPUT, [1], [1])])
    assert len(walk_rknn(write_rknn(tmp_path / "m.rknn", one, repeat=3)).tensors) == 9
    assert "too much" in outcome(
        tmp_path / "bomb.rknn", write_rknn(tmp_path / "m.rknn", one, repeat=40_000).read_bytes()
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"RKNN" + bytes(30), "shorter than its header"),
        (b"RKNN" + bytes(12) + b"\xff" * 8 + bytes(90), "runs past the end"),
        (b"RKNN\0\0\0\0\x04\x10" + bytes(200), "mini format.*version 4100"),
        (b"\x01\x02\x03\x04" + bytes(80), "not an .rknn"),
        (b"", "empty"),
    ],
    ids=["header", "length", "mini", "binary", "empty"],
)
def test_file_that_is_none(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "bad.rknn").write_bytes(data)
    with pytest.raises(ContainerError, match=reason):
        weight_blob(tmp_path / "bad.rknn")


def test_json_behind_the_flatbuffer(engine: Path, tmp_path: Path) -> None:
    data = engine.read_bytes()
    end = 64 + int.from_bytes(data[16:24], "little") + 8
    for text, reason in ((b"{", "not JSON"), (b"[1]", "not a JSON object")):
        changed = data[: end - 8] + len(text).to_bytes(8, "little") + text
        assert reason in outcome(tmp_path / "json.rknn", changed)


@pytest.mark.parametrize(
    ("size", "reason"), [(41, "larger than its buffer.*expected 40, found 41"), (1 << 31, "larger")]
)
def test_weight_larger_than_its_buffer(tmp_path: Path, size: int, reason: str) -> None:
    made = graph()
    made.tensors[1].size = size
    with pytest.raises(RknnError, match=rf"'conv\.weight'.*{reason}"):
        walk_rknn(write_rknn(tmp_path / "m.rknn", made))


def test_operator_of_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    made = graph()
    made.operators[0][2].append(5)
    with pytest.raises(RknnError, match="no such tensor"):
        walk_rknn(write_rknn(tmp_path / "m.rknn", made))
