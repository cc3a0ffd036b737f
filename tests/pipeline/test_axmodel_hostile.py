"""Containers that are not as an engine has them: one line of AxmodelError, never another exception."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from pipeline.axmodel.walk import walk_engine
from pipeline.container.blob import read_blob
from pipeline.errors import AxmodelError, ContainerError
from tests.helpers.containers import blob, container, graph_info, neu, save, small

INFO = graph_info("m", "w")
OVERLONG = b"\x80" * 10 + b"\x01"


def outcome(path: Path, data: bytes) -> str:
    """`walked` or the error's line; blobs of a walk lie in the file."""
    path.write_bytes(data)
    try:
        engine = walk_engine(path)
    except ContainerError as error:
        line = str(error)
        assert path.name in line
        assert "\n" not in line
        return line
    for item in engine.blobs:
        assert 0 <= item.offset <= item.offset + item.size <= len(data)
    return "walked"


def test_truncated_at_every_byte(tmp_path: Path) -> None:
    data = small().SerializeToString()
    results = [outcome(tmp_path / "cut.axmodel", data[:stop]) for stop in range(len(data))]
    graph_end = max(stop for stop, result in enumerate(results) if result != "walked")
    assert results.count("walked") < 30  # a cut between two fields behind the graph leaves a whole engine
    assert graph_end > 300


def test_every_byte_changed(tmp_path: Path) -> None:
    data = small().SerializeToString()
    for at in range(len(data)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            outcome(tmp_path / "changed.axmodel", data[:at] + bytes([value]) + data[at + 1 :])


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    assert outcome(tmp_path_factory.getbasetemp() / "bytes.axmodel", data) != "walked"


@settings(max_examples=200)
@given(st.data())
def test_bytes_put_in_and_taken_out(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = small().SerializeToString()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, min(len(whole), start + 12)))
    part = data.draw(st.binary(max_size=12))
    outcome(tmp_path_factory.getbasetemp() / "edited.axmodel", whole[:start] + part + whole[stop:])


@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"\x08" + OVERLONG, 1, "longer than 10 bytes"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", 1, "more than 64 bits"),
        (b"\x08\x0a\x3a\x85\x80", 3, "past the end"),
        (b"\x3a\x7f\x00", 0, "field 7 runs past.*expected at most 1 bytes, found 127"),
        (b"\x3a" + b"\xff" * 9 + b"\x01", 0, "runs past"),
        (b"\x09\x00", 0, "field 1 runs past"),
        (b"\x0b\x0c", 0, "wire type 3"),
        (b"\x00\x00", 0, "no such field number"),
        (b"\x12\x02\xff\xfe", 2, "not UTF-8"),
        (b"\x10\x02", 1, "not a string"),
    ],
)
def test_wire_faults_name_their_offset(tmp_path: Path, data: bytes, offset: int, reason: str) -> None:
    (tmp_path / "wire.axmodel").write_bytes(data)
    with pytest.raises(AxmodelError, match=reason) as caught:
        walk_engine(tmp_path / "wire.axmodel")
    assert caught.value.offset == offset


def with_tensor(**changes: object) -> onnx.ModelProto:
    fields: dict[str, object] = {"name": "w", "data_type": TensorProto.UINT8, "dims": [3], "raw_data": b"abc"}
    return container([neu(npu_graph_info=INFO)], [TensorProto(**(fields | changes)), blob("m", b"m")])


def external() -> onnx.ModelProto:
    model = with_tensor(data_location=TensorProto.EXTERNAL)
    model.graph.initializer[0].ClearField("raw_data")
    entry = model.graph.initializer[0].external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    return model


FAULTS = {
    "dims larger": (with_tensor(dims=[4]), "dims disagree.*expected 4, found 3"),
    "dims negative": (with_tensor(dims=[-3]), "dims disagree"),
    "dims of another type": (with_tensor(data_type=TensorProto.FLOAT), "dims disagree.*expected 12, found 3"),
    "unknown type": (with_tensor(data_type=99), "unknown element type.*99"),
    "external data": (external(), "outside the engine file.*"),
    "two of one name": (container([neu(npu_graph_info=INFO)], [blob("w", b"1"), blob("w", b"2")]), "two init.*'w'"),
    "no weights": (container([neu(npu_graph_info=INFO)], [blob("m", b"m")]), "'w', which is not in the file"),
    "no microcode": (container([neu(npu_graph_info=INFO)], [blob("w", b"w")]), "'m', which is not in the file"),
    "old key absent": (container([neu(neu="gone")], [blob("w", b"w")]), "no initializer of the file: 'gone'"),
    "no attribute": (container([neu()], [blob("w", b"w")]), "found no attributes"),
    "no engine node": (container([], [blob("w", b"w")]), 'expected a "neu mode" node'),
    "no graph": (onnx.ModelProto(producer_name="x"), "expected 1 graph, found 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named(tmp_path: Path, name: str) -> None:
    model, reason = FAULTS[name]
    with pytest.raises(AxmodelError, match=reason) as caught:
        walk_engine(save(model, tmp_path / "fault.axmodel"))
    assert caught.value.file == tmp_path / "fault.axmodel"


def test_two_graphs(tmp_path: Path) -> None:
    data = small().SerializeToString()
    assert "expected 1 graph, found 2" in outcome(tmp_path / "twice.axmodel", data + data)


@pytest.mark.parametrize(
    "info",
    [
        "",
        "{",
        "7",
        "null",
        "[]",
        "{}",
        '{"dotneus": []}',
        '{"dotneus": 3}',
        '{"dotneus": [{}]}',
        '{"dotneus": ["text"]}',
        '{"dotneus": [{"neu_key": 5}]}',
        '{"dotneus": [{"neu_key": "m", "extra_inputs": 5}]}',
        '{"dotneus": [{"neu_key": "m", "extra_inputs": ["const_data_key"]}]}',
        '{"dotneus": [{"neu_key": "m", "extra_inputs": [{"const_data_key": ["w"]}]}]}',
        "[" * 100_000,
    ],
    ids=lambda info: repr(info[:60]),
)
def test_graph_info_of_another_form(tmp_path: Path, info: str) -> None:
    model = container([neu(npu_graph_info=info)], [blob("w", b"w"), blob("m", b"m")])
    assert "npu_graph_info" in outcome(tmp_path / "info.axmodel", model.SerializeToString())


def test_packed_dims_read_as_unpacked_ones(tmp_path: Path) -> None:
    """Writers may pack repeated integers; both forms are legal protobuf."""
    model = with_tensor(dims=[1, 3])
    loose, packed = bytes.fromhex("08010803"), bytes.fromhex("0a020103")
    data = model.SerializeToString()
    assert data.count(loose) == 1
    assert outcome(tmp_path / "packed.axmodel", data.replace(loose, packed)) == "walked"
    wrong = data.replace(loose, bytes.fromhex("0a020104"))
    assert "dims disagree" in outcome(tmp_path / "packed.axmodel", wrong)


def test_weights_without_bytes_are_refused(tmp_path: Path) -> None:
    model = container([neu(npu_graph_info=INFO)], [blob("w", b""), blob("m", b"m")])
    with pytest.raises(AxmodelError, match=r"hollow\.axmodel.*'?w'?"):
        read_blob(save(model, tmp_path / "hollow.axmodel"))


def test_info_with_a_deep_value_beside_its_keys(tmp_path: Path) -> None:
    info = json.dumps({"dotneus": [{"neu_key": "m", "extra_inputs": [{"const_data_key": "w"}], "x": [[[[]]]]}]})
    model = container([neu(npu_graph_info=info)], [blob("w", b"w"), blob("m", b"m")])
    assert outcome(tmp_path / "deep.axmodel", model.SerializeToString()) == "walked"


@pytest.mark.parametrize("inside", [b"", b"\x3a", b"\x3a\x0a"], ids=["model", "graph", "node"])
def test_message_of_too_many_fields(tmp_path: Path, inside: bytes) -> None:
    """Empty nodes, initializers and attributes cost two bytes each and a great deal more to read."""
    data = b"\x0a\x00" * 140_000
    for tag in reversed(inside):
        data = bytes([tag]) + varint(len(data)) + data
    assert "too many fields" in outcome(tmp_path / "many.axmodel", data)


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14])
