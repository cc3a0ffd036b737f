from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter, dequantize

from pipeline.errors import CheckpointError, MismatchError, MissingFileError
from pipeline.evaluate import twin as twin_module
from pipeline.evaluate.twin import TWIN_OF, write_twin
from pipeline.files import file_sha256
from tests.helpers.tiny import tiny_config, write_tiny_gguf


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, tiny_config("qwen2"), seed=1, qtype="Q4_1")
    return path


def test_every_tensor_is_the_dequantized_one_in_f32(source: Path, tmp_path: Path) -> None:
    twin = GGUFReader(write_twin(source, tmp_path / "twin.gguf"))
    expected = {t.name: t for t in GGUFReader(source).tensors}
    assert [t.name for t in twin.tensors] == list(expected)
    for tensor in twin.tensors:
        original = expected[tensor.name]
        assert tensor.tensor_type.name == "F32"
        assert tensor.shape.tolist() == original.shape.tolist()
        assert np.array_equal(tensor.data, dequantize(original.data, original.tensor_type))


def test_all_metadata_is_kept_with_its_types(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    writer = GGUFWriter(source, "llama")
    writer.add_token_list(["<s>", "a", "ü", b"\xff\xfe"])
    writer.add_token_scores([0.0, -1.5, 2.0, 1e-30])
    writer.add_token_types([3, 1, 1, 6])
    writer.add_key_value("x.u8", 200, GGUFValueType.UINT8)
    writer.add_key_value("x.i64", -(2**60), GGUFValueType.INT64)
    writer.add_key_value("x.f64", 0.1, GGUFValueType.FLOAT64)
    writer.add_key_value("x.bool", True, GGUFValueType.BOOL)
    writer.add_key_value("x.flags", [True, False], GGUFValueType.ARRAY, sub_type=GGUFValueType.BOOL)
    writer.add_file_type(3)
    writer.add_tensor("token_embd.weight", np.arange(8, dtype=np.float16).reshape(4, 2))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    before, after = (GGUFReader(path).fields for path in (source, write_twin(source, tmp_path / "twin.gguf")))
    assert [*before, TWIN_OF] == list(after)
    assert after[TWIN_OF].contents() == file_sha256(source)
    for name, field in after.items():
        if name != TWIN_OF and not name.startswith("GGUF."):
            assert [part.tobytes() for part in field.parts] == [part.tobytes() for part in before[name].parts], name


def test_alignment_of_the_source_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "source.gguf"
    writer = GGUFWriter(source, "llama")
    writer.add_custom_alignment(128)
    for name, size in (("a", 3), ("b", 65), ("c", 32)):
        writer.add_tensor(name, np.arange(size, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    twin = GGUFReader(write_twin(source, tmp_path / "twin.gguf"))
    assert [tensor.data_offset % 128 for tensor in twin.tensors] == [0, 0, 0]
    assert [tensor.data.tolist() for tensor in twin.tensors] == [list(range(3)), list(range(65)), list(range(32))]


def test_a_twin_that_is_there_is_not_written_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = write_twin(source, tmp_path / "twin.gguf")
    inode = twin.stat().st_ino
    assert write_twin(source, twin).stat().st_ino == inode
    os.utime(source, ns=(1, 1_000_000_000))
    assert write_twin(source, twin).stat().st_ino == inode


def test_twin_of_another_source_with_the_same_time_is_written_again(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    write_tiny_gguf(other, tiny_config("qwen2"), seed=2, qtype="Q4_1")
    for path in (source, other):
        os.utime(path, ns=(1, 1_000_000_000))
    twin = write_twin(source, tmp_path / "twin.gguf")
    first = twin.read_bytes()
    assert write_twin(other, twin).read_bytes() != first
    assert write_twin(source, twin).read_bytes() == first


def test_file_that_is_no_twin_is_left_alone(source: Path, tmp_path: Path) -> None:
    other = shutil.copy2(source, tmp_path / "other.gguf")
    for path in (source, other):
        before = path.read_bytes()
        with pytest.raises(MismatchError, match=rf"{path.name}: engineset\.twin_of: is there and not a twin"):
            write_twin(source, path)
        assert path.read_bytes() == before


def test_twin_of_a_twin_says_so_once(source: Path, tmp_path: Path) -> None:
    first = write_twin(source, tmp_path / "first.gguf")
    with pytest.raises(MismatchError, match=r"first\.gguf"):
        write_twin(first, first)
    second = GGUFReader(write_twin(first, tmp_path / "second.gguf"))
    assert second.fields[TWIN_OF].contents() == file_sha256(first)
    assert len(second.fields) == len(GGUFReader(first).fields)


def test_a_failure_leaves_nothing_behind(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def failing(data: object, kind: object) -> object:
        calls.append(kind)
        if len(calls) > 3:
            raise NotImplementedError
        return dequantize(data, kind)

    monkeypatch.setattr(twin_module, "dequantize", failing)
    folder = tmp_path / "twins"
    with pytest.raises(CheckpointError, match=r"tiny\.gguf: .+: cannot be dequantized"):
        write_twin(source, folder / "twin.gguf")
    assert list(folder.iterdir()) == []


def test_sources_that_are_not_there_or_no_gguf_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"absent\.gguf"):
        write_twin(tmp_path / "absent.gguf", tmp_path / "twin.gguf")
    (tmp_path / "text.gguf").write_text("no GGUF at all, whatever its name is")
    with pytest.raises(CheckpointError, match=r"text\.gguf"):
        write_twin(tmp_path / "text.gguf", tmp_path / "twin.gguf")
