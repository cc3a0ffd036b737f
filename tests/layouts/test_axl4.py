"""AXL4: golden bytes, exact round trips, what it cannot hold, hostile files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.axl4 import MATRICES, read_axl4, write_axl4
from layouts.errors import SidecarError
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.integers import published
from tests.helpers.layouts import layouts, moved, one_copy

OFFSET = 1570
Q = one_copy("self_attn.q_proj.weight", Layout((2, 3), 8, (Digit(2, 16),), (Digit(3, 32),), 16))
NORM = one_copy("post_attention_layernorm.weight", Layout((1, 2), 8 * 20, (), (Digit(2, 16),), 16))
GOLDEN = b"".join(
    [
        b"AXL4" + bytes.fromhex("01000000 01000000 01000000"),
        b"q\0\0\0\0\0\0\0" + bytes.fromhex("02000000 03000000"),
        *(bytes([low, 0x06, 0, 0, 0, 0, 0, 0]) for low in (0x23, 0x27, 0x2B, 0x25, 0x29, 0x2D)),
        b"post_attention_layernorm.weight\0" + bytes.fromhex("02000000"),
        *(bytes([low, 0x06, 0, 0, 0, 0, 0, 0]) for low in (0x36, 0x38)),
    ]
)


def engine(*tensors: StoredTensor, size: int = 40, offset: int = OFFSET) -> EngineLayout:
    return EngineLayout("layer", "npu_params", size, tensors, offset)


def test_golden_bytes(tmp_path: Path) -> None:
    path = tmp_path / "layout_v4.bin"
    assert write_axl4(path, engine(NORM, Q), OFFSET, strict=True) == []
    assert path.read_bytes() == GOLDEN
    assert read_axl4(path, OFFSET, 40) == engine(Q, NORM)
    assert [p.name for p in tmp_path.iterdir()] == ["layout_v4.bin"]


@settings(max_examples=40)
@given(st.data())
def test_one_copy_round_trips(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """All matrices in published order, then vectors, biases among them, at any byte."""
    path = tmp_path_factory.mktemp("axl4") / "layout_v4.bin"
    tensors, end = [], 0
    for name in (*MATRICES.values(), "input_layernorm.weight", "self_attn.q_proj.bias", "model.norm.weight"):
        layout = data.draw(layouts(16, grain=8))
        if name not in MATRICES.values():
            layout = Layout((1, layout.shape[1]), layout.base, (), layout.cols, 16)
        tensors.append(one_copy(name, moved(layout, end)))
        end = tensors[-1].copies[0].planes[0].pieces[0].layout.extent[1] + 8
    blob_offset = data.draw(st.integers(0, 1 << 33))
    whole = EngineLayout("post", "w", end // 8, tuple(tensors), blob_offset)
    assert write_axl4(path, whole, blob_offset, strict=True) == []
    assert read_axl4(path, blob_offset, end // 8, kind="post", blob="w") == whole


def test_several_pieces_and_a_named_codec(tmp_path: Path) -> None:
    pieces = tuple(
        Piece(row, 0, Layout((4, 5), base, (Digit(4, step),), (Digit(5, step * 4),), 32))
        for row, base, step in ((0, 0, 32), (4, 8000, 64))
    )
    down = StoredTensor("mlp.down_proj.weight", (8, 5), "fp32", (Copy("decode", (Plane(pieces),)),))
    path = tmp_path / "a"
    assert write_axl4(path, engine(Q_FAR, down, size=3000), 7) == [
        "mlp.down_proj.weight: codec fp32 is not recorded, bf16 is assumed"
    ]
    read = read_axl4(path, 7, 3000, codec={"mlp.down_proj.weight": "fp32"})
    assert read == engine(Q_FAR, down, size=3000, offset=7)


Q_FAR = one_copy("self_attn.q_proj.weight", Layout((2, 3), 8 * 2900, (Digit(2, 16),), (Digit(3, 32),), 16))


def lossy() -> EngineLayout:
    copies = (Q.copies[0], Copy("prefill", (Plane((Piece(1, 0, Layout((1, 3), 800, (), (Digit(3, 16),), 16)),)),)))
    byte = Layout((1, 4), 1600, (), (Digit(4, 16),), 8)
    high = Layout((1, 4), 1608, (), (Digit(4, 16),), 8)
    planes = (Plane((Piece(0, 0, byte),)), Plane((Piece(0, 0, high),), low_bit=8))
    bits = Layout((1, 3), 2001, (), (Digit(3, 17),), 16)
    tensors = (
        StoredTensor(Q.name, (2, 3), "bf16", copies),
        StoredTensor("model.norm.weight", (1, 4), "bf16", (Copy("decode", planes),)),
        one_copy("odd.weight", bits),
        one_copy("a_vector_whose_name_is_longer_than_32_bytes", Layout((1, 2), 2400, (), (Digit(2, 16),), 16)),
        one_copy("strange.weight", Layout((2, 2), 2560, (Digit(2, 16),), (Digit(2, 32),), 16)),
    )
    return engine(*tensors, size=400)


def test_losses_are_listed_one_line_each(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert write_axl4(path, lossy(), OFFSET) == [
        "self_attn.q_proj.weight: copy prefill of rows 1 to 2 is not held",
        "model.norm.weight: plane of bits 8 to 16 is not held",
        "odd.weight: elements are no whole bytes, the tensor is not held",
        "a_vector_whose_name_is_longer_than_32_bytes: no name for it, the tensor is not held",
        "strange.weight: no name for it, the tensor is not held",
    ]
    assert struct.unpack("<2I", path.read_bytes()[8:16]) == (1, 1)


@pytest.mark.parametrize(("kind", "planes"), [("s8", ["plane of bits 4 to 8 is not held"]), ("s4", [])])
def test_integers_are_not_held(tmp_path: Path, kind: str, planes: list[str]) -> None:
    up = published("mlp.up_proj.weight", (33, 40), kind)
    notes = [
        *planes,
        "scale entries are not held",
        f"codec {kind} is not recorded, bf16 is assumed",
        "elements are no whole bytes, the tensor is not held",
    ]
    whole = engine(up, size=9000)
    assert write_axl4(tmp_path / "a", whole, OFFSET) == [f"mlp.up_proj.weight: {note}" for note in notes]
    with pytest.raises(SidecarError, match=r"mlp\.up_proj\.weight: elements are no whole bytes"):
        write_axl4(tmp_path / "b", whole, OFFSET, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_strict_refuses_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SidecarError, match=r"AXL4 cannot hold the layout: self_attn.q_proj.weight: copy prefill"):
        write_axl4(tmp_path / "a", lossy(), OFFSET, strict=True)
    assert list(tmp_path.iterdir()) == []


def patched(at: int, data: bytes) -> bytes:
    return GOLDEN[:at] + data + GOLDEN[at + len(data) :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an AXL4 file"),
        (patched(0, b"AXL3"), r"byte 0: not an AXL4 file"),
        (patched(4, b"\x02"), r"byte 4: unknown version \(expected 1, found 2\)"),
        (patched(8, b"\xff\xff\xff\xff"), "byte 8: too many records"),
        (patched(8, b"\x02"), "byte 80: unknown matrix"),
        (patched(12, b"\x02"), "byte 132: file too short"),
        (patched(12, b"\x00"), "byte 80: bytes after the last record"),
        (patched(16, b"z"), r"byte 16: unknown matrix \(expected q \| k"),
        (patched(24, b"\xff\xff\xff\xff\xff\xff\xff\xff"), "self_attn.q_proj.weight: byte 32: file too short"),
        (patched(24, b"\0\0\0\0"), r"byte 16: empty tensor \(found \[0, 3\]\)"),
        (GOLDEN[:-1], r"post_attention_layernorm.weight: byte 116: file too short \(expected 132, found 131\)"),
        (GOLDEN + b"\0", "byte 132: bytes after the last record"),
        (patched(40, b"\xff" * 8), r"self_attn.q_proj.weight\[0, 1\]: byte 40: element is not placed"),
        (patched(57, b"\x05"), r"self_attn.q_proj.weight\[1, 0\]: byte 56: element outside the blob"),
        (patched(124, b"\x49"), r"post_attention_layernorm.weight\[0, 1\]: byte 124: element outside the blob"),
        (patched(40, b"\x23"), r"self_attn.q_proj.weight\[0, 0\]: stride 0"),
        (patched(116, b"\x29\x06\0\0\0\0\0\0\x2b"), "two elements in one place"),
        (patched(80, b"\xff"), "not a name"),
    ],
)
def test_refusals(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "layout_v4.bin"
    path.write_bytes(data)
    with pytest.raises(SidecarError, match=reason) as caught:
        read_axl4(path, OFFSET, 40)
    assert str(caught.value).startswith(str(path))


def test_repeated_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(patched(8, b"\x02")[:80] + GOLDEN[16:])
    with pytest.raises(SidecarError, match=r"self_attn.q_proj.weight: byte 80: name twice"):
        read_axl4(path, OFFSET, 40)


def test_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SidecarError, match="cannot be read: No such file"):
        read_axl4(tmp_path / "a", 0, 1)


def test_offsets_are_those_of_expand(tmp_path: Path) -> None:
    """A tensor of several write blocks."""
    layout = Layout((700, 300), 8 * 64, (Digit(64, 16), Digit(11, 64 * 16 * 301)), (Digit(300, 1024),), 16)
    size = layout.extent[1] // 8
    write_axl4(tmp_path / "a", engine(one_copy("lm_head.weight", layout), size=size), 11)
    table = np.frombuffer((tmp_path / "a").read_bytes(), "<u8", offset=32)
    assert np.array_equal(table.reshape(700, 300), (layout.expand() // 8 + 11).astype(np.uint64))
