"""GGUF files that go wrong: one line each, naming file, tensor or key, offset and both sides."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.errors import CheckpointError, EngineSetError, MissingFileError
from tests.helpers.gguf_bytes import ARRAY, F32, STRING, U8, U32, GgufBytes, Tensor, f32

VALUES = np.arange(64, dtype=np.float32).reshape(2, 32)


def sound() -> GgufBytes:
    keys = {"general.architecture": (STRING, "llama"), "words": (ARRAY, (STRING, ["a", "bc"])), "n": (U8, 1)}
    return GgufBytes(keys, [f32("first", VALUES), f32("second", VALUES)])


def one(**changes) -> GgufBytes:
    """A file whose only tensor differs from a sound one."""
    tensor = f32("odd", VALUES)
    for name, value in changes.items():
        setattr(tensor, name, value)
    return GgufBytes(tensors=[tensor], tail=bytes(256) if changes.get("offset") is not None else b"")


def keyed(raw: bytes) -> GgufBytes:
    return GgufBytes(kv_count=1, extra_keys=raw)


PACK = GgufBytes()
STRUCTURE = {
    "first offset past the end": (one(offset=1 << 40), r"odd: byte 1099511627\d+: .*past the end .*expected \d+ bytes"),
    "offset just past the end": (one(offset=32), "odd: byte .*past the end"),
    "offset that wraps": (one(offset=(1 << 64) - 64), "odd: byte .*past the end"),
    "no dims": (one(dims=[]), r"odd: .*number of dimensions \(expected 1 to 4, found 0\)"),
    "5 dims": (one(dims=[32, 1, 1, 1, 2]), r"odd: .*number of dimensions \(expected 1 to 4, found 5\)"),
    "wrapping product": (one(dims=[1 << 62, 8]), r"odd: .*impossible dimensions .*\[4611686018427387904, 8\]"),
    "wrapping to the right size": (one(dims=[(1 << 63) + 32, 2]), "odd: .*impossible dimensions"),
    "negative dimension": (one(dims=[(1 << 64) - 1]), "odd: .*impossible dimensions"),
    "wrapping bytes": (one(dims=[1 << 61, 2]), "odd: .*past the end"),
    "zero dimension": (one(dims=[32, 0]), r"odd: .*impossible dimensions .*\[32, 0\]"),
    "one row more": (one(dims=[32, 3]), "odd: .*past the end"),
    "type 31": (one(type_id=31), r"odd: .*unknown tensor type .*found 31\)"),
    "type 41": (one(type_id=41), r"odd: .*unknown tensor type .*found 41\)"),
    "type 9999": (one(type_id=9999), r"odd: .*unknown tensor type .*found 9999\)"),
    "removed type 4": (one(type_id=4), r"odd: .*unknown tensor type .*found 4\)"),
    "integers": (one(type_id=26), r"odd: .*unknown tensor type .*found 26\)"),
    "row of half a block": (one(type_id=8, dims=[48, 2]), r"odd: .*whole Q8_0 blocks \(expected a multiple of 32"),
    "row of 896 in K-quants": (one(type_id=12, dims=[896]), "odd: .*whole Q4_K blocks .*256, found 896"),
    "nameless tensor": (one(name=""), "tensor 0: .*empty name"),
    "duplicate tensor": (GgufBytes(tensors=[f32("t", VALUES)] * 2), "t: duplicate tensor"),
    "overlap": (
        GgufBytes(tensors=[f32("a", VALUES), Tensor("b", [32], 0, b"", 224)], tail=bytes(128)),
        r"b: byte \d+: overlaps .*expected >= \d+, found \d+",
    ),
    "same place": (GgufBytes(tensors=[f32("a", VALUES), Tensor("b", [32], 0, b"", 0)]), "[ab]: .*overlaps"),
    "tensor count": (
        GgufBytes(tensor_count=1 << 40),
        r"tensor_count: .*can hold \(expected <= 0, found 1099511627776\)",
    ),
    "tensor count by one": (GgufBytes(tensor_count=1), "tensor_count: "),
    "key count": (GgufBytes(kv_count=1 << 40, tail=bytes(64)), "kv_count: .*found 1099511627776"),
    "key count all ones": (GgufBytes(kv_count=(1 << 64) - 1), "kv_count: "),
    "duplicate key": (
        GgufBytes(kv_count=2, extra_keys=PACK.key("k", U8, 1) * 2, tail=bytes(64)),
        "k: .*duplicate key",
    ),
    "unknown value type": (keyed(PACK.string("k") + PACK.pack("IQ", 13, 1)), "k: .*unknown value type .*found 13"),
    "array of arrays": (keyed(PACK.string("k") + PACK.pack("IIQ", 9, 9, 1) + bytes(32)), "k: .*array type .*found 9"),
    "array too long": (keyed(PACK.string("k") + PACK.pack("IIQ", 9, 4, 1 << 40)), "k: .*array length"),
    "array wraps": (keyed(PACK.string("k") + PACK.pack("IIQ", 9, 10, 1 << 61)), "k: .*array length"),
    "strings too many": (keyed(PACK.string("k") + PACK.pack("IIQ", 9, 8, 1 << 40)), "k: .*array length"),
    "string too long": (keyed(PACK.string("k") + PACK.pack("IQ", 8, 1 << 40)), "k: .*string length"),
    "string in array too long": (
        keyed(PACK.string("k") + PACK.pack("IIQQ", 9, 8, 1, 1 << 63)),
        r"k\[0\]: .*inside a string",
    ),
    "key name too long": (keyed(PACK.pack("Q", 1 << 40) + bytes(32)), "key 0: .*string length"),
    "key not UTF-8": (keyed(PACK.key(b"\xff\xfe", U8, 1)), "key 0: .*not UTF-8"),
    "version 1": (GgufBytes(version=1), r"unsupported GGUF version \(expected 2 or 3, found 1\)"),
    "version 99": (GgufBytes(version=99), "version .*found 99"),
    "version 0": (GgufBytes(version=0), "version .*found 0"),
    "big-endian version 1": (GgufBytes(version=1, order=">"), "version .*found 1"),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_structure_refused(tmp_path: Path, case):
    parts, message = STRUCTURE[case]
    with pytest.raises(CheckpointError, match=message) as caught:
        GgufFile(parts.write(tmp_path / "m.gguf"))
    assert str(caught.value).startswith(str(tmp_path / "m.gguf: ")) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(U32, 0), (U32, 24), (U32, 1 << 30), (U32, 3), (F32, 32.0), (STRING, "32"), (ARRAY, (U32, [32]))],
)
def test_alignment_refused(tmp_path: Path, kind, value):
    parts = sound()
    parts.keys["general.alignment"] = (kind, value)
    with pytest.raises(CheckpointError, match=r"general\.alignment: impossible alignment"):
        GgufFile(parts.write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("content", "seems"),
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"\n <HTML><body>404", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "a zip archive"),
        (b"lmgg" + bytes(60), "a GGML file from before GGUF"),
        (b'\x10\0\0\0\0\0\0\0{"a":1}', "a safetensors file"),
        (b'{"error": "not found"}', "JSON"),
        (bytes(64), "zeros"),
        (b"GGU", "text"),
        (b"\xde\xad\xbe\xef" * 9, "bytes de ad be ef"),
    ],
)
def test_not_a_gguf_says_what_it_is(tmp_path: Path, content, seems):
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=f"not a GGUF .expected GGUF, found {seems}"):
        GgufFile(tmp_path / "m.gguf")


def test_cut_off_data_names_tensor_and_sizes(tmp_path: Path):
    raw = sound().build()
    (tmp_path / "m.gguf").write_bytes(raw[:-40])
    with pytest.raises(CheckpointError) as caught:
        GgufFile(tmp_path / "m.gguf")
    offset = len(raw) - 256
    assert str(caught.value) == (
        f"{tmp_path}/m.gguf: second: byte {offset}: tensor data ends past the end of the file"
        f" (expected {len(raw)} bytes, found {len(raw) - 40})"
    )


def test_every_truncation_is_refused(tmp_path: Path):
    raw, path = sound().build(), tmp_path / "m.gguf"
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(CheckpointError):
            GgufFile(path)


@pytest.mark.filterwarnings("ignore::pipeline.checkpoint.source_file.CheckpointWarning")
@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_any_spoilt_header_byte_gives_a_reading_or_one_line(tmp_path: Path, value):
    raw, path = sound().build(), tmp_path / "m.gguf"
    refused = 0
    for at in range(len(raw) - 2 * VALUES.nbytes):
        path.write_bytes(raw[:at] + bytes([value]) + raw[at + 1 :])
        try:
            file = GgufFile(path)
            for name in file.tensors:
                file.read_raw(name)
            [list(v) for v in file.metadata.values() if not np.isscalar(v)]
        except EngineSetError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("counts", [[101], [50, 50, 1], [(1 << 22) + 1]])
def test_more_strings_than_any_vocabulary_has(tmp_path: Path, monkeypatch, counts):
    if max(counts) < 1000:
        monkeypatch.setattr("pipeline.checkpoint.gguf_header.MAX_STRINGS", 100)
    arrays = [PACK.string(f"k{i}") + PACK.pack("IIQ", 9, 8, count) + bytes(8 * count) for i, count in enumerate(counts)]
    path = GgufBytes(kv_count=len(counts), extra_keys=b"".join(arrays)).write(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match=rf"k{len(counts) - 1}: byte \d+: too many strings .*found {sum(counts)}"):
        GgufFile(path)


def test_paths_that_are_no_files(tmp_path: Path):
    with pytest.raises(MissingFileError, match="no such file"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(MissingFileError, match="no such file"):
        GgufFile(sound().write(tmp_path / "m.gguf") / "below")
    with pytest.raises(CheckpointError, match="not a regular file"):
        GgufFile(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        GgufFile(tmp_path / ("n" * 300))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        GgufFile(tmp_path / "pipe")


@pytest.mark.parametrize("change", ["longer", "shorter", "touched", "replaced"])
def test_file_that_changes_after_opening_is_refused(tmp_path: Path, change):
    path = sound().write(tmp_path / "m.gguf")
    file = GgufFile(path)
    if change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "replaced":
        stat = path.stat()
        sound().write(tmp_path / "n").replace(path)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        os.truncate(path, path.stat().st_size + (1 if change == "longer" else -1))
    with pytest.raises(CheckpointError, match="changed since it was opened"):
        file.read_raw("second")


def test_unknown_tensor_name(tmp_path: Path):
    with pytest.raises(CheckpointError, match="third: no such tensor"):
        GgufFile(sound().write(tmp_path / "m.gguf")).read_raw("third")


def test_big_endian_type_without_defined_order(tmp_path: Path):
    tensor = Tensor("w", [32], 6, bytes(22))
    with pytest.raises(CheckpointError, match="w: big-endian Q5_0 is not supported"):
        GgufFile(GgufBytes(tensors=[tensor], order=">").write(tmp_path / "m.gguf"))
