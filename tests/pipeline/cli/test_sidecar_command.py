"""`engineset sidecar convert` both ways: a published layer at its real size, a real container, what is lost, what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from layouts.algebra import Digit, Layout, Piece
from layouts.copies import Rect
from layouts.sidecar import read_layout, write_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.axmodel.walk import walk_engine
from pipeline.cli.sidecar import sidecar
from pipeline.errors import EngineSetError, MismatchError, SidecarError
from tests.helpers import containers
from tests.helpers.integers import published
from tests.helpers.layouts import one_copy

HIDDEN, Q, KV, INTERMEDIATE, HEAD = 1024, 2048, 1024, 3072, 128
QWEN3 = {
    "self_attn.q_proj.weight": (Q, HIDDEN),
    "self_attn.k_proj.weight": (KV, HIDDEN),
    "self_attn.v_proj.weight": (KV, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, Q),
    "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
    "input_layernorm.weight": (1, HIDDEN),
    "post_attention_layernorm.weight": (1, HIDDEN),
    "self_attn.q_norm.weight": (1, HEAD),
    "self_attn.k_norm.weight": (1, HEAD),
}
"""A layer of Qwen3-0.6B."""


def lines(shapes: dict[str, tuple[int, int]], offset: int = 1570) -> EngineLayout:
    """Lines of one k of 64 rows, and a spare line behind each block, one tensor after the other."""
    tensors, at = [], 0
    for name, (rows, cols) in shapes.items():
        blocks = Digit(-(-rows // 64), 1024 * (cols + 1))
        layout = Layout((rows, cols), at, (Digit(64, 16), blocks), (Digit(cols, 1024),), 16)
        tensors.append(one_copy(name, layout))
        at = layout.extent[1]
    return EngineLayout("layer", "npu_params", at // 8, tuple(tensors), offset)


SMALL = lines({name: (rows // 32 or 1, cols // 32) for name, (rows, cols) in QWEN3.items()})


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(sidecar, ["convert", *map(str, arguments)])


def done(*arguments: object) -> str:
    result = convert(*arguments)
    assert result.exception is None, result.exception
    return result.stderr


def refusal(kind: type[EngineSetError], *arguments: object) -> str:
    result = convert(*arguments)
    assert isinstance(result.exception, kind), result.exception or result.output
    line = str(result.exception)
    assert "\n" not in line
    return line


def engine_with(path: Path, blob_bytes: int) -> Path:
    """A real container whose weights are zeros."""
    model = containers.small()
    for initializer in model.graph.initializer:
        if initializer.name == "npu_params":
            initializer.CopyFrom(containers.blob("npu_params", bytes(blob_bytes)))
    return containers.save(model, path)


def test_a_published_layer_there_and_back(tmp_path: Path) -> None:
    """126 MB from a text of kilobytes, and the same text again."""
    layout = lines(QWEN3)
    write_layout(tmp_path / "a.layout.toml", layout)
    assert (tmp_path / "a.layout.toml").stat().st_size < 4096
    assert done(tmp_path / "a.layout.toml", tmp_path / "layout_v4.bin", "--strict") == ""
    elements = sum(rows * cols for rows, cols in QWEN3.values())
    assert (tmp_path / "layout_v4.bin").stat().st_size == 16 + 7 * 16 + 4 * 36 + 8 * elements == 125_847_824
    with (tmp_path / "layout_v4.bin").open("rb") as file:
        assert struct.unpack("<4s3I8s2I", file.read(32)) == (b"AXL4", 1, 7, 4, b"q\0\0\0\0\0\0\0", Q, HIDDEN)
    assert done(tmp_path / "layout_v4.bin", tmp_path / "b.layout.toml") == ""
    read = read_layout(tmp_path / "b.layout.toml")
    from_file = lines(QWEN3, 0)
    assert (read.blob_offset, read.kind, read.names()) == (0, "layer", list(QWEN3))
    moved = [replace(t, copies=tuple(shifted(copy, 8 * 1570) for copy in t.copies)) for t in from_file.tensors]
    assert list(read.tensors) == moved


def shifted(copy: Copy, bits: int) -> Copy:
    pieces = [replace(p, layout=replace(p.layout, base=p.layout.base + bits)) for p in copy.planes[0].pieces]
    return Copy(copy.name, (Plane(tuple(pieces)),))


def test_an_engine_says_where_its_weights_lie(tmp_path: Path) -> None:
    engine = engine_with(tmp_path / "e.axmodel", SMALL.blob_bytes)
    offset = walk_engine(engine).weights.offset
    write_layout(tmp_path / "a.toml", SMALL)
    done(tmp_path / "a.toml", tmp_path / "a.bin", "--engine", engine)
    first = np.fromfile(tmp_path / "a.bin", "<u8", 2, offset=32)
    assert first.tolist() == [offset, offset + 128]
    done(tmp_path / "a.bin", tmp_path / "b.toml", "--engine", engine)
    assert read_layout(tmp_path / "b.toml") == replace(SMALL, blob_offset=offset)
    other = engine_with(tmp_path / "o.axmodel", SMALL.blob_bytes - 1)
    assert "not an engine of this layout" in refusal(
        MismatchError, tmp_path / "a.toml", tmp_path / "c.bin", "--engine", other
    )
    assert "outside the blob" in refusal(SidecarError, tmp_path / "a.bin", tmp_path / "c.toml", "--engine", other)
    assert {path.name for path in tmp_path.iterdir()} == {"a.toml", "a.bin", "b.toml", "e.axmodel", "o.axmodel"}


@pytest.mark.parametrize(("name", "kind"), [("lm_head.weight", "post"), ("model.embed_tokens.weight", "embedding")])
def test_counts_and_kinds_follow_the_model(tmp_path: Path, name: str, kind: str) -> None:
    shapes = {name: (70, 8)} | ({"model.norm.weight": (1, 8)} if kind == "post" else {})
    layout = replace(lines(shapes, 0), kind=kind)
    write_layout(tmp_path / "a.toml", layout)
    done(tmp_path / "a.toml", tmp_path / "a.bin", "--strict")
    done(tmp_path / "a.bin", tmp_path / "b.toml")
    assert read_layout(tmp_path / "b.toml") == layout


def test_codecs_are_told(tmp_path: Path) -> None:
    wide = one_copy("mlp.up_proj.weight", Layout((4, 5), 0, (Digit(4, 32),), (Digit(5, 128),), 32), "fp32")
    half = one_copy("b", Layout((1, 5), 1024, (), (Digit(5, 16),), 16), "fp16")
    layout = EngineLayout("layer", "npu_params", 138, (wide, half))
    write_layout(tmp_path / "a.toml", layout)
    assert "codec fp32 is not recorded" in done(tmp_path / "a.toml", tmp_path / "a.bin")
    done(tmp_path / "a.bin", tmp_path / "b.toml", "--codec", f"{wide.name}=fp32", "--codec", "b=fp16")
    assert read_layout(tmp_path / "b.toml") == layout
    refused = "no such tensor (expected mlp.up_proj.weight, b)"
    assert refused in refusal(SidecarError, tmp_path / "a.bin", tmp_path / "c.toml", "--codec", "c=fp16")
    for wrong in (["--codec", "s8"], ["--codec", "fp16", "--codec", "bf16"], ["--codec", "fp16", "--codec", "b=bf16"]):
        assert convert(tmp_path / "a.bin", tmp_path / "c.toml", *wrong).exit_code == 2
    assert convert(tmp_path / "a.toml", tmp_path / "c.bin", "--codec", "fp16").exit_code == 2


def lossy() -> EngineLayout:
    up = published("mlp.up_proj.weight", (33, 40), first_byte=3000)
    gate = replace(published("mlp.gate_proj.weight", (33, 40), first_byte=9000))
    half = Layout((2, 2), 0, (Digit(2, 16),), (Digit(2, 64),), 16)
    holed = Copy("decode", (Plane((Piece(0, 0, half),)),), absent=(Rect(0, 2, 2, 1),))
    return EngineLayout(
        "layer", "w", 20_000, (up, gate, StoredTensor("self_attn.q_proj.weight", (2, 3), "bf16", (holed,), padding=1))
    )


def test_what_is_lost_is_one_line_and_strict_refuses_it(tmp_path: Path) -> None:
    write_layout(tmp_path / "a.toml", lossy())
    note = done(tmp_path / "a.toml", tmp_path / "a.bin")
    assert note.count("\n") == 1
    assert note.startswith(f"note: {tmp_path / 'a.bin'} does not tell everything: ")
    both = "(mlp.up_proj.weight, mlp.gate_proj.weight)"
    for what in ("plane of bits 4 to 8 is not held", "scale entries are not held"):
        assert f"{what} {both}" in note
    assert "absent elements are not told from ones that are not placed (self_attn.q_proj.weight)" in note
    assert "axes and padding of the source are not held (self_attn.q_proj.weight)" in note
    table = np.fromfile(tmp_path / "a.bin", "<u8", offset=32)
    assert table.tolist() == [0, 8, (1 << 64) - 1, 2, 10, (1 << 64) - 1]
    assert "element is not placed" in refusal(SidecarError, tmp_path / "a.bin", tmp_path / "b.toml")
    assert "AXL4 cannot hold the layout" in refusal(SidecarError, tmp_path / "a.toml", tmp_path / "b.bin", "--strict")
    assert {path.name for path in tmp_path.iterdir()} == {"a.toml", "a.bin"}


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("x.bin", b"", "not an AXL4 file"),
        ("x.bin", bytes(range(256)) * 40, "not an AXL4 file"),
        ("x.toml", b"\x00\xff" * 40, "sidecar cannot be read"),
        ("x.toml", b"", "missing key"),
        ("x.dat", b"AXL4" + struct.pack("<3I8s2I", 1, 1, 0, b"q", 1 << 31, 1 << 31), "file too short"),
        ("x.bin", b"AXL4" + struct.pack("<3I", 1, 1 << 31, 1 << 31), "too many records"),
        ("x.bin", b"AXL4" + struct.pack("<3I8s2I", 1, 1, 0, b"q", 2, 2) + bytes(31), "file too short"),
        ("x.bin", b"AXL4" + struct.pack("<3I8s2I", 1, 1, 0, b"q", 2, 2) + b"\x7f" * 32, "outside the blob"),
    ],
)
def test_junk_is_one_line(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(data)
    output = "y.bin" if name.endswith(".toml") else "y.toml"
    line = refusal(SidecarError, tmp_path / name, tmp_path / output)
    assert line.startswith(f"{tmp_path / name}: ")
    assert reason in line
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    """Counts that fill a terabyte of nothing: all elements are in one place."""
    path, rows = tmp_path / "x.bin", 1 << 18
    with path.open("wb") as file:
        file.write(b"AXL4" + struct.pack("<3I8s2I", 1, 1, 0, b"q", rows, rows))
        file.truncate(32 + 8 * rows * rows)
    engine = engine_with(tmp_path / "e.axmodel", 1000)
    assert "more elements than the blob holds" in refusal(SidecarError, path, tmp_path / "y.toml", "--engine", engine)


def test_formats_are_told_apart(tmp_path: Path) -> None:
    write_layout(tmp_path / "a.toml", SMALL)
    assert "the other format is wanted" in refusal(SidecarError, tmp_path / "a.toml", tmp_path / "b.toml")
    done(tmp_path / "a.toml", tmp_path / "a.bin")
    assert "the other format is wanted" in refusal(SidecarError, tmp_path / "a.bin", tmp_path / "b.bin")
    assert "cannot be read" in refusal(SidecarError, tmp_path / "absent.bin", tmp_path / "b.toml")
    assert "cannot be read" in refusal(SidecarError, tmp_path / "absent.toml", tmp_path / "b.bin")
