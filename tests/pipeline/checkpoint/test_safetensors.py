"""safetensors files: sound ones of every float type, and ones that go wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.checkpoint.safetensors_file import read_safetensors
from pipeline.checkpoint.source_file import CheckpointWarning
from pipeline.errors import CheckpointError, EngineSetError, NotFiniteError

VALUES = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
SOUND = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
KINDS = {
    "F32": np.float32,
    "F16": np.float16,
    "F64": np.float64,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


def write(path: Path, header: Any, data: bytes = VALUES.tobytes(), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def test_file_of_the_safetensors_package(tmp_path: Path):
    save_file({"b": VALUES, "a": VALUES[0].astype(np.float16)}, tmp_path / "m.safetensors", {"format": "pt"})
    tensors = read_safetensors(tmp_path / "m.safetensors")
    assert sorted(tensors) == ["a", "b"] and tensors["a"].type_name == "F16"
    np.testing.assert_array_equal(tensors["b"].read(0, 3), VALUES)
    np.testing.assert_array_equal(tensors["a"].read(0, 4), VALUES[0].astype(np.float16))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pad", [b"", b" ", b"   "])
def test_every_float_type_at_any_byte(tmp_path: Path, kind, pad):
    stored = VALUES.astype(KINDS[kind])
    entry = {"dtype": kind, "shape": [3, 4], "data_offsets": [0, stored.nbytes]}
    path = write(tmp_path / "m", json.dumps({"w": entry}).encode() + pad, stored.tobytes())
    tensor = read_safetensors(path)["w"]
    np.testing.assert_array_equal(tensor.read(0, 3), stored.astype(np.float32), strict=True)
    np.testing.assert_array_equal(tensor.read(1, 2), stored[1:2].astype(np.float32))


def entry(**changes: Any) -> dict[str, Any]:
    return {"w": SOUND | changes}


REFUSED = {
    "unknown type": (entry(dtype="F4"), r"w: unknown type .*found F4"),
    "type no string": (entry(dtype=[1]), "w: unknown type"),
    "no offsets": ({"w": {"dtype": "F32", "shape": [3, 4]}}, "w: malformed entry"),
    "entry no object": ({"w": 7}, "w: malformed entry"),
    "zero dimension": (entry(shape=[3, 0]), r"w: impossible shape .*found \[3, 0\]"),
    "negative dimension": (entry(shape=[-3, -4]), "w: impossible shape"),
    "fraction": (entry(shape=[3, 4.0]), "w: impossible shape"),
    "boolean": (entry(shape=[True, 12]), "w: impossible shape"),
    "wrapping product": (entry(shape=[1 << 62, 8]), "w: impossible shape"),
    "size too small": (entry(data_offsets=[0, 44]), r"w: size does not follow .*expected 48, found 44"),
    "offsets reversed": (entry(data_offsets=[48, 0]), "w: size does not follow .*found -48"),
    "offset negative": (entry(data_offsets=[-48, 0]), "w: malformed data_offsets"),
    "three offsets": (entry(data_offsets=[0, 48, 96]), "w: malformed data_offsets"),
    "past the end": (entry(data_offsets=[4, 52]), r"w: data end past the end .*found \d+"),
    "far past the end": (entry(data_offsets=[1 << 40, (1 << 40) + 48]), "w: data end past the end"),
    "overlap": (
        {"a": SOUND | {"shape": [4], "data_offsets": [0, 16]}, "b": SOUND | {"shape": [8], "data_offsets": [12, 44]}},
        r"b: byte \d+: overlaps another tensor",
    ),
    "duplicate": (b'{"w":{"dtype":"F32"},"w":{"dtype":"F32"}}', "duplicate name w"),
    "not JSON": (b'{"w": ]', "header is not JSON"),
    "not UTF-8": (b'{"\xff": 1}', "header is not JSON"),
    "deep": (b'{"a":' + b"[" * 100_000, "header is not JSON"),
    "a list": (b'["w"]', "not a safetensors file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_header_refused(tmp_path: Path, case):
    header, message = REFUSED[case]
    with pytest.raises(CheckpointError, match=message) as caught:
        read_safetensors(write(tmp_path / "m", header))
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(tmp_path / "m"))


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, 10_000])
def test_header_length_refused(tmp_path: Path, length):
    with pytest.raises(CheckpointError, match=rf"byte 0: impossible header length .*found {length}"):
        read_safetensors(write(tmp_path / "m", {"w": SOUND}, length=length))


@pytest.mark.parametrize(
    ("content", "seems"),
    [(b"", "an empty file"), (b"version https://git-lfs", "a Git LFS pointer"), (b"GGUF" * 9, "a GGUF")],
)
def test_not_safetensors_says_what_it_is(tmp_path: Path, content, seems):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(CheckpointError, match=f"not a safetensors file .*found {seems}"):
        read_safetensors(tmp_path / "m")


def test_every_truncation_is_refused(tmp_path: Path):
    raw = write(tmp_path / "m", {"w": SOUND}).read_bytes()
    for length in range(len(raw)):
        (tmp_path / "m").write_bytes(raw[:length])
        with pytest.raises(CheckpointError):
            read_safetensors(tmp_path / "m")


@pytest.mark.filterwarnings("ignore::pipeline.checkpoint.source_file.CheckpointWarning")
@pytest.mark.parametrize("value", [0, ord('"'), ord("9"), ord("["), 0xFF])
def test_any_spoilt_header_byte_gives_a_reading_or_one_line(tmp_path: Path, value):
    raw = write(tmp_path / "m", {"w": SOUND, "__metadata__": {"a": "b"}}).read_bytes()
    refused = 0
    for at in range(len(raw) - 48):
        (tmp_path / "m").write_bytes(raw[:at] + bytes([value]) + raw[at + 1 :])
        try:
            for tensor in read_safetensors(tmp_path / "m").values():
                tensor.read(0, tensor.shape[0])
        except EngineSetError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 20


def test_bytes_after_the_last_tensor_warn(tmp_path: Path):
    with pytest.warns(CheckpointWarning, match="5 bytes after the last tensor are ignored"):
        tensors = read_safetensors(write(tmp_path / "m", {"w": SOUND}, VALUES.tobytes() + b"extra"))
    np.testing.assert_array_equal(tensors["w"].read(0, 3), VALUES)


def test_integers_are_listed_and_not_read(tmp_path: Path):
    tensor = read_safetensors(write(tmp_path / "m", entry(dtype="I32")))["w"]
    with pytest.raises(CheckpointError, match=r"w: not a weight .*found I32"):
        tensor.read(0, 1)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "F8_E4M3"])
def test_value_that_is_not_finite(tmp_path: Path, kind):
    stored = VALUES.astype(KINDS[kind])
    stored[2, 1] = np.nan
    header = entry(dtype=kind, data_offsets=[0, stored.nbytes])
    tensor = read_safetensors(write(tmp_path / "m", header, stored.tobytes()))["w"]
    with pytest.raises(NotFiniteError, match=r"w: byte \d+: NaN in element 9, row 2$") as caught:
        tensor.read(1, 3)
    assert caught.value.offset == tensor.offset + 9 * stored.itemsize
    assert np.isfinite(tensor.read(0, 2)).all()
