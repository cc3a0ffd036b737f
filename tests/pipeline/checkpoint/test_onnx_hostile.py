"""ONNX files that go wrong: every one is read or refused with one line, whatever byte is spoilt."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from pipeline.checkpoint.open import open_weights_source
from pipeline.errors import CheckpointError, EngineSetError
from tests.helpers.onnx_models import array_of, branch, constant, graph, tensor, typed_tensor, write_model
from tests.helpers.real_engines import silero_engine

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def changed(proto: onnx.TensorProto, **fields: object) -> onnx.TensorProto:
    for name, value in fields.items():
        if name == "dims":
            del proto.dims[:]
            proto.dims.extend(value)
        else:
            setattr(proto, name, value)
    return proto


def nested(depth: int) -> onnx.GraphProto:
    inner = graph([tensor("w", W)])
    for level in range(depth):
        inner = graph(nodes=[branch(f"y{level}", body=inner)])
    return inner


def sparse() -> onnx.GraphProto:
    main = graph([tensor("w", W)])
    main.sparse_initializer.add(dims=[9])
    return main


REFUSED: dict[str, tuple[Callable[[], onnx.GraphProto], str]] = {
    "no weights": (lambda: graph([tensor("n", np.arange(3))]), "holds no weights$"),
    "two initializers": (lambda: graph([tensor("w", W), tensor("w", W)]), "w: byte .*two tensors of one name"),
    "initializer and constant": (
        lambda: graph([tensor("w", W)], [constant("w", W)]),
        "w: byte .*two tensors of one name",
    ),
    "name made by ours": (
        lambda: graph([tensor("y.a/w", W), tensor("w", W)], [branch("y", a=graph([tensor("w", W)]))]),
        "y.a/w: two tensors of one name",
    ),
    "no name": (lambda: graph([tensor("", W)]), r"graph\.initializer\[0\]: byte .*a tensor without a name"),
    "dims too large": (
        lambda: graph([changed(tensor("w", W), dims=[3, 5])]),
        r"w: .*dims disagree .*expected 60 bytes, found 48",
    ),
    "dims too small": (lambda: graph([changed(tensor("w", W), dims=[3])]), "w: .*dims disagree"),
    "negative dimension": (lambda: graph([changed(tensor("w", W), dims=[-3, -4])]), r"impossible shape .*\[-3, -4\]"),
    "wrapping product": (lambda: graph([changed(tensor("w", W), dims=[1 << 62, 8])]), "impossible shape"),
    "many dimensions": (lambda: graph([changed(tensor("w", W), dims=[1] * 9)]), "impossible shape"),
    "no data": (lambda: graph([changed(tensor("w", W), raw_data=b"")]), "w: .*disagree|not what shape"),
    "promised gigabytes": (lambda: graph([changed(typed_tensor("w", "I4", W), dims=[1 << 40])]), "w: .*dims disagree"),
    "too few typed": (lambda: graph([changed(typed_tensor("w", "F32", W), dims=[3, 5])]), "w: byte .*not what shape"),
    "too many typed": (lambda: graph([changed(typed_tensor("w", "F16", W), dims=[5])]), "w: byte .*not what shape"),
    "four bits short": (
        lambda: graph([changed(tensor("w", array_of("I4", (6,))), dims=[7])]),
        "w: .*dims disagree .*expected 4 bytes, found 3",
    ),
    "complex": (lambda: graph([tensor("w", W.astype(np.complex64))]), "w: not numbers .*found ONNX type 14"),
    "type of the future": (lambda: graph([changed(tensor("w", W), data_type=99)]), "w: not numbers .*ONNX type 99"),
    "segments": (
        lambda: graph([changed(typed_tensor("w", "F32", W)), *[changed_segment()]]),
        "segment: byte .*not what shape and type say",
    ),
    "sparse": (sparse, "sparse initializers are not supported"),
    "engine": (lambda: graph([tensor("w", W)], [helper.make_node("neu mode", [], ["y"])]), "a finished engine"),
}


def changed_segment() -> onnx.TensorProto:
    proto = typed_tensor("segment", "F32", W)
    proto.segment.begin, proto.segment.end = 0, 12
    return proto


def read_all(path: Path) -> None:
    source = open_weights_source(path)
    for name in source.names():
        source.read(name)


@pytest.mark.parametrize("case", REFUSED)
def test_model_refused(tmp_path: Path, case):
    make, message = REFUSED[case]
    path = write_model(tmp_path / "m.onnx", make())
    with pytest.raises(CheckpointError, match=message) as caught:
        read_all(path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))


def test_deep_but_possible(tmp_path: Path):
    assert open_weights_source(write_model(tmp_path / "m.onnx", nested(20))).names() == ["w"]


def test_graphs_nested_by_the_thousand_are_refused(tmp_path: Path):
    """Deeper than any recursion: built by hand, since protobuf itself refuses to."""
    body = b""
    for _ in range(5000):
        attribute = b"\x32" + varint(len(body)) + body
        node = b"\x2a" + varint(len(attribute)) + attribute
        body = b"\x0a" + varint(len(node)) + node
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x3a" + varint(len(body)) + body)
    with pytest.raises(CheckpointError, match="graphs are nested too deep"):
        open_weights_source(tmp_path / "m.onnx")


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an ONNX model .*found an empty file|empty"),
        (b"version https://git-lfs.github.com/spec/v1", "not an ONNX model .*found a Git LFS pointer"),
        (b"<html>", "not an ONNX model .*found an HTML page"),
        (b"\x08\x07", "not an ONNX model .*expected 1 graph, found 0"),
    ],
)
def test_not_a_model_says_what_it_is(tmp_path: Path, content, message):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_weights_source(tmp_path / "m.onnx")


def test_real_engine_is_no_source(tmp_path: Path):
    with pytest.raises(CheckpointError, match="a finished engine, not a source of weights"):
        open_weights_source(silero_engine("ax650"))


def small_model() -> onnx.GraphProto:
    then = graph([tensor("w", W)])
    tensors = [tensor("w", W), typed_tensor("h", "F16", W), tensor("i", array_of("I4", (2, 3)))]
    return graph(tensors, [constant("c", W), branch("y", then_branch=then)])


def test_every_truncation_gives_a_reading_or_one_line(tmp_path: Path):
    raw = write_model(tmp_path / "m.onnx", small_model()).read_bytes()
    refused = 0
    for length in range(len(raw)):
        (tmp_path / "m.onnx").write_bytes(raw[:length])
        refused += one_line(tmp_path / "m.onnx")
    assert refused > len(raw) * 0.9


@pytest.mark.parametrize("value", [0, 0x7F, 0x80, 0xFF])
def test_any_spoilt_byte_gives_a_reading_or_one_line(tmp_path: Path, value):
    raw = write_model(tmp_path / "m.onnx", small_model()).read_bytes()
    refused = 0
    for at in range(len(raw)):
        (tmp_path / "m.onnx").write_bytes(raw[:at] + bytes([value]) + raw[at + 1 :])
        refused += one_line(tmp_path / "m.onnx")
    assert refused > 20


def one_line(path: Path) -> bool:
    """Whether the file is refused; anything but one of our errors fails the test."""
    try:
        read_all(path)
    except EngineSetError as error:
        assert "\n" not in str(error)
        return True
    return False


def test_more_than_two_gigabytes_are_read_in_place(tmp_path: Path):
    """A sparse file of 3 GiB: no message of that size is ever in memory."""
    rows, cols, path = 3 << 10, 1 << 18, tmp_path / "m.onnx"
    size = rows * cols * 4
    head = b"\x08" + varint(rows) + b"\x08" + varint(cols) + b"\x10\x01\x42\x01w\x4a" + varint(size)
    inner = b"\x2a" + varint(len(head) + size) + head
    start = b"\x08\x08\x3a" + varint(len(inner) + size) + inner
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + size)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())
    source = open_weights_source(path)
    assert source.shape("w") == (rows, cols)
    last = source.read("w", slice(rows - 1, rows))
    assert last[0, -1] == 7 and not last[0, :-1].any()
