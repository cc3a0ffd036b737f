"""Engine files that are not engines, or not whole, or not honest: one line, an engine code, nothing loaded."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.helpers.microcode_bytes import BF16, U32, Code, Group, Slot, Weights, piece, write_engine
from tests.helpers.simulator import Card, card

DECODE_ERROR = 0x80300709
HIDDEN = 32


def engine(spoil: Callable[[Code], None] | None = None, more: bytes = b"") -> tuple[Group, bytes]:
    code, weights = Code(1, kind=2), Weights()
    matrix = np.random.default_rng(0).standard_normal((HIDDEN, HIDDEN)).astype(np.float32)
    source, result = code.register(HIDDEN), code.register(HIDDEN)
    tensor = code.tensor("bf16", matrix.shape, [weights.add(matrix, "bf16")])
    code.emit("LOAD", source, 0)
    code.emit("MATMUL", source, result, tensor, 0xFFFFFFFF)
    code.emit("STORE", result, 0)
    if spoil is not None:
        spoil(code)
    slots = [Slot("input", BF16, (1, HIDDEN))], [Slot("output", BF16, (1, HIDDEN))]
    return Group(*slots, code.encode() + more), bytes(weights.data)


def refuse(path: Path, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with card() as one:
        model = ctypes.c_uint64(99)
        capfd.readouterr()
        assert one.lib("axclrtEngineLoadFromFile", str(path).encode(), ctypes.byref(model)) == DECODE_ERROR
        assert model.value == 99 and one.report()["memory"]["used"] == 0
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1 and str(path) in lines[0] and message in lines[0]


def patched(offset: int, layout: str, *values: int | bytes) -> Callable[[bytes], bytes]:
    def patch(code: bytes) -> bytes:
        raw = struct.pack(layout, *values)
        return code[:offset] + raw + code[offset + len(raw) :]

    return patch


# Header 64, registers 8, tensor 48 (at 72), piece 128 (at 120), operations 48 each (at 248).
MICROCODE = [
    (patched(0, "<4s", b"AXNE"), "not RNEU"),
    (patched(4, "<I", 1), "version"),
    (patched(4, "<I", 3), "version"),
    (patched(8, "<I", 5), "size"),
    (patched(12, "<I", 3), "unknown kind 3"),
    (patched(20, "<I", 0), "tokens per call"),
    (patched(28, "<I", 3), "size that its counts fill"),
    (patched(36, "<I", 0xFFFFFFFF), "size that its counts fill"),
    (patched(64, "<I", 0), "width of register 0"),
    (patched(64, "<I", 33), "operation 0: elements of the input"),
    (patched(72, "<I", 0), "unknown codec 0"),
    (patched(72, "<I", 6), "unknown codec 6"),
    (patched(72, "<I", 3), "columns of a scale entry"),
    (patched(84, "<I", 128), "columns of a scale entry"),
    (patched(96, "<I", 1), "second plane: pieces of a part"),
    (patched(104, "<2I", 1, 0), "entries: pieces of a part"),
    (patched(76, "<I", 31), "rows of its pieces"),
    (patched(80, "<I", 0), "is empty"),
    (patched(88, "<I", 1), "first piece"),
    (patched(92, "<I", 2), "number of pieces"),
    (patched(92, "<I", 0), "rows of its pieces"),
    (patched(120, "<I", 1), "first row of a piece"),
    (patched(128, "<Q", 1), "does not start on a byte"),
    (patched(128, "<Q", 1 << 40), "outside the weights"),
    (patched(128, "<Q", 2**64 - 8), "outside the weights"),
    (patched(136, "<I", 7), "digits of a piece"),
    (patched(144, "<q", -(1 << 40)), "outside the weights"),
    (patched(144, "<q", 3), "does not start on a byte"),
    (patched(144, "<q", 1 << 62), "overflows"),
    (patched(152, "<I", 0), "digit of size 0"),
    (patched(152, "<I", 1), "digits do not reach"),
    (patched(248, "<I", 99), "unknown opcode 99"),
    (patched(252, "<I", 2), "no register 2"),
    (patched(256, "<I", 1), "no input or output 1"),
    (patched(296, "<I", 3), "operation 1: "),
    (patched(300, "<I", 1), "register 1 is read before it is written"),
    (patched(308, "<I", 1), "no tensor 1"),
    (patched(312, "<I", 0), "rows of a vector"),
    (lambda code: code[:40], "bytes of a header"),
    (lambda code: code + b"\0", "size"),
]


@pytest.mark.parametrize(("patch", "message"), MICROCODE, ids=range(len(MICROCODE)))
def test_microcode_that_lies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], patch: Callable[[bytes], bytes], message: str
) -> None:
    group, weights = engine()
    path = write_engine(tmp_path / "bad.axmodel", [replace(group, microcode=patch(group.microcode))], weights)
    refuse(path, message, capfd)


def integer_engine(codec: str, spoil: Callable[[Code], None] | None = None) -> tuple[Group, bytes]:
    """One matrix [3, 5]: planes at bits 32 and 96, entries at bits 192."""
    code = Code(1, kind=2)
    source, result = code.register(5), code.register(3)
    plane = [[piece(0, 3, base, [(20, 3)], [(4, 5)])] for base in (32, 96)]
    entry = [piece(0, 3, 192, [(32, 3)], [(0, 1)])]
    parts = [*plane, entry] if codec == "s8" else [plane[0], entry]
    code.emit("LOAD", source, 0)
    code.emit("MATMUL", source, result, code.tensor(codec, (3, 5), *parts, group=128), 0xFFFFFFFF)
    code.emit("STORE", result, 0)
    if spoil is not None:
        spoil(code)
    slots = [Slot("input", BF16, (1, 5))], [Slot("output", BF16, (1, 3))]
    return Group(*slots, code.encode()), b"\x3c" * 36


def test_bytes_of_an_integer_matrix_are_as_documented(tmp_path: Path) -> None:
    """Version 2 written out by hand; the simulator takes it and finds 3 * 5 integers and 3 scales where it says."""
    header = b"RNEU" + struct.pack("<10I20x", 2, 648, 2, 7, 1, 0, 2, 1, 3, 3)
    tensor = struct.pack("<12I", 3, 3, 5, 128, 0, 1, 1, 1, 2, 1, 0, 0)
    places = [(32, 20, 4, 5), (96, 20, 4, 5), (192, 32, 0, 1)]
    pieces = [
        struct.pack("<IIQIIqIIqII72x", 0, 3, base, 1, 1, row, 3, 0, col, cols, 0) for base, row, col, cols in places
    ]
    operations = [struct.pack("<12I", 1, 0, 0, *[0] * 9), struct.pack("<12I", 4, 0, 1, 0, 0xFFFFFFFF, *[0] * 7)]
    operations.append(struct.pack("<12I", 2, 1, 0, *[0] * 9))
    group, _ = integer_engine("s8")
    assert group.microcode == header + bytes.fromhex("05000000 03000000") + tensor + b"".join(pieces + operations)
    # fine 1, 2, 3, 4, 5 and coarse 8, 7, 8, 9, 8 in every row; scales 1, 2, 4
    number = sum((0x54321 << 20 * r) << 32 | (0x89878 << 20 * r) << 96 for r in range(3))
    number |= sum(scale << (192 + 32 * r + 16) for r, scale in enumerate((0x3F80, 0x4000, 0x4080)))
    path = write_engine(tmp_path / "whole.axmodel", [group], number.to_bytes(36, "little"))
    with card() as one:
        found = one.load(path).run(0, {"input": np.full((1, 5), 0x3F80, np.uint16)})["output"]
    assert found.tolist() == [0x4170, 0x41F0, 0x4270]  # 15, 30, 60: 1 + (2 - 16) + 3 + (4 + 16) + 5 = 15


# Header 64, registers 8, tensor 48 (at 72), pieces 128 each (at 120, 248, 376), of which 8 to 15 are the base, 24 to 31
# and 32 to 35 stride and size of the first digit.
INTEGERS = [
    ("s8", patched(84, "<I", 0), "columns of a scale entry, a multiple (expected 128, found 0)"),
    ("s4", patched(84, "<I", 192), "columns of a scale entry, a multiple (expected 128, found 192)"),
    ("s8", patched(72, "<I", 4), "tensor 0, second plane: pieces of a part that its codec does not have"),
    ("s4", patched(72, "<I", 3), "tensor 0, second plane: first piece (expected 1, found 0)"),
    ("s8", patched(88, "<I", 1), "tensor 0: first piece"),
    ("s8", patched(96, "<I", 0), "tensor 0, second plane: first piece"),
    ("s8", patched(104, "<I", 1), "tensor 0, entries: first piece"),
    ("s8", patched(108, "<I", 2), "tensor 0, entries: number of pieces"),
    ("s8", patched(108, "<I", 0), "tensor 0, entries: rows of its pieces"),
    ("s4", patched(248, "<I", 1), "tensor 0, entries: first row of a piece"),
    ("s8", patched(128, "<Q", 34), "tensor 0: a piece does not start on half a byte"),
    ("s8", patched(144, "<q", 21), "tensor 0: an element does not start on half a byte"),
    ("s8", patched(384, "<Q", 196), "tensor 0: a piece does not start on a byte"),
    ("s8", patched(400, "<q", 36), "tensor 0: an element does not start on a byte"),
    ("s8", patched(128, "<Q", 288 - 56), "an element lies outside the weights"),
    ("s8", patched(256, "<Q", 288 - 56), "an element lies outside the weights"),
    ("s8", patched(384, "<Q", 288 - 88), "an element lies outside the weights"),
    ("s8", patched(256, "<Q", 2**64 - 4), "an element lies outside the weights"),
    ("s8", patched(400, "<q", -97 * 8), "an element lies outside the weights"),
    ("s8", patched(408, "<I", 2), "digits do not reach index 2"),
]


@pytest.mark.parametrize(("codec", "patch", "message"), INTEGERS, ids=range(len(INTEGERS)))
def test_integer_matrices_that_lie(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], codec: str, patch: Callable[[bytes], bytes], message: str
) -> None:
    group, weights = integer_engine(codec)
    path = write_engine(tmp_path / "whole.axmodel", [group], weights)
    with card() as one:
        one.load(path)
    path = write_engine(tmp_path / "bad.axmodel", [replace(group, microcode=patch(group.microcode))], weights)
    refuse(path, message, capfd)


def test_a_tensor_larger_than_the_blob(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def spoil(code: Code) -> None:
        rows = 1 << 31
        code.tensor("bf16", (rows, HIDDEN), [piece(0, rows, 0, [(0, rows)], [(0, HIDDEN)])])
        code.emit("MATMUL", 0, code.register(HIDDEN), 1, 0xFFFFFFFF)

    group, weights = engine(spoil)
    refuse(write_engine(tmp_path / "bad.axmodel", [group], weights), "width of the destination", capfd)


def test_output_that_is_never_stored(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    group, weights = engine(lambda code: code.operations.pop())
    refuse(write_engine(tmp_path / "bad.axmodel", [group], weights), "output output is never stored", capfd)


@pytest.mark.parametrize("codec", ["bf16", "s8"])
def test_tensors_that_share_all_weights(tmp_path: Path, capfd: pytest.CaptureFixture[str], codec: str) -> None:
    def spoil(code: Code) -> None:
        code.tensors += code.tensors * 2

    group, weights = engine(spoil) if codec == "bf16" else integer_engine(codec, spoil)
    refuse(write_engine(tmp_path / "bad.axmodel", [group], weights), "all tensors hold more elements", capfd)


def test_many_tensors_that_share_pieces_are_refused_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tensors, pieces = 2000, 1500
    body = struct.pack("<2I", HIDDEN, HIDDEN) + struct.pack("<6I24x", 1, pieces, 1, 0, 0, pieces) * tensors
    body += b"".join(piece(row, 1, 0, [(0, 1)], [(0, 1)]) for row in range(pieces))
    head = struct.pack("<4s10I20x", b"RNEU", 2, 64 + len(body), 2, 0, 1, 0, 2, tensors, pieces, 0)
    group, weights = engine()
    path = write_engine(tmp_path / "bad.axmodel", [replace(group, microcode=head + body)], weights)
    refuse(path, "tensor 1: number of pieces", capfd)


@pytest.mark.parametrize("side", ["input", "output"])
def test_groups_whose_names_are_exchanged(tmp_path: Path, capfd: pytest.CaptureFixture[str], side: str) -> None:
    groups = []
    for m in (1, 64):
        code = Code(m)
        for index in range(2):
            code.emit("LOAD", code.register(8), index)
            code.emit("STORE", index, index)
        ends = [[Slot(f"{which}_{end}", BF16, (m, 8)) for which in "KV"] for end in ("in", "out")]
        groups.append(Group(*ends, code.encode()))
    path = write_engine(tmp_path / "ok.axmodel", groups, b"\0" * 8)
    with card() as one:
        assert len(one.load(path).inputs) == 2
    model = onnx.load(path)
    names = getattr(model.graph.node[1], side)
    names[0], names[1] = names[1], names[0]
    path.write_bytes(model.SerializeToString())
    refuse(
        path, f"group 1: name or type of an input or output (expected K_{side[:-3]}_1, found V_{side[:-3]}_1)", capfd
    )


def write_model(path: Path, change: Callable[[onnx.ModelProto], None]) -> Path:
    group, weights = engine()
    write_engine(path, [group], weights)
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def rename(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].name = "other"


def drop_json(model: onnx.ModelProto) -> None:
    model.graph.node[0].attribute[0].s = b'{"dotneus": ['


def another_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = U32


def no_shape(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = "else"


def zero_dim(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0


def huge(model: onnx.ModelProto) -> None:
    for _ in range(6):
        model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1 << 30


def two_of_one_name(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def wrong_dims(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] += 1


def wrong_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = onnx.TensorProto.FLOAT


def external(model: onnx.ModelProto) -> None:
    blob = model.graph.initializer[0]
    blob.ClearField("raw_data")
    blob.data_location = onnx.TensorProto.EXTERNAL
    blob.external_data.add(key="location", value="../weights.bin")


def plain_onnx(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "MatMul"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename, "no initializer npu_params"),
        (drop_json, "npu_graph_info"),
        (another_type, "another element type"),
        (no_shape, "no type and shape for input"),
        (zero_dim, "dimension 0"),
        (huge, "overflows"),
        (plain_onnx, "not an engine"),
        (two_of_one_name, "input: two inputs or outputs of one name"),
        (wrong_dims, "initializer npu_params: dims disagree"),
        (wrong_type, "initializer npu_params: dims disagree"),
        (external, "initializer npu_params: external data"),
    ],
)
def test_containers_that_lie(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    refuse(write_model(tmp_path / "bad.axmodel", change), message, capfd)


def execute(one: Card, model: int) -> None:
    """Runs group 0 on zeros; whatever it computes, it computes inside its buffers."""
    context, info = (one.lib.handle(f"axclrtEngine{what}", model) for what in ("CreateContext", "GetIOInfo"))
    io = one.lib.handle("axclrtEngineCreateIO", info)
    buffers = []
    for side in ("Input", "Output"):
        for index in range(one.lib(f"axclrtEngineGetNum{side}s", info)):
            size = one.lib(f"axclrtEngineGet{side}SizeByIndex", info, 0, index)
            buffers.append(one.put(bytes(size)))
            one.lib.ok(f"axclrtEngineSet{side}BufferByIndex", io, index, buffers[-1], size)
    one.lib.ok("axclrtEngineExecute", model, context, 0, io)
    for buffer in buffers:
        one.lib.ok("axclrtFree", buffer)
    one.lib.ok("axclrtEngineDestroyIO", io)
    one.lib.ok("axclrtEngineDestroyIOInfo", info)


@pytest.mark.parametrize("codec", ["bf16", "s8", "s4"])
def test_every_truncation_is_refused_and_no_flipped_byte_crashes(tmp_path: Path, codec: str) -> None:
    group, weights = engine() if codec == "bf16" else integer_engine(codec)
    path = write_engine(tmp_path / "ok.axmodel", [group], weights)
    data = path.read_bytes()
    graph_end = data.rindex(b"npu_dyn_params")
    rng = np.random.default_rng(1)
    with card() as one:
        one.lib.ok("axclSetLogLevel", 6)
        model = ctypes.c_uint64()
        for size in range(1, graph_end, 7):
            path.write_bytes(data[:size])
            assert one.lib("axclrtEngineLoadFromFile", str(path).encode(), ctypes.byref(model)) == DECODE_ERROR, size
        for _ in range(800):
            spoilt = bytearray(data)
            for at in rng.integers(0, len(data), 2):
                spoilt[at] = rng.integers(0, 256)
            path.write_bytes(spoilt)
            code = one.lib("axclrtEngineLoadFromFile", str(path).encode(), ctypes.byref(model))
            assert code in (0, DECODE_ERROR)
            if code == 0:
                execute(one, model.value)
                one.lib.ok("axclrtEngineUnload", model.value)
