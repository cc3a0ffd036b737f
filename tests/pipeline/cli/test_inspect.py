"""What `engineset inspect` says of files that are nothing it knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save_file

from pipeline.cli.inspect import inspect
from pipeline.errors import CheckpointError, ContainerError, EngineSetError, MissingFileError
from tests.helpers.tiny import tiny_config, write_tiny_gguf


def refusal(path: Path) -> EngineSetError:
    error = CliRunner().invoke(inspect, [str(path)]).exception
    assert isinstance(error, EngineSetError)
    return error


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("layer.layout.toml", b'kind = "layer"\n', "text"),
        ("notes", b"some\r\n\ttext", "text"),
        ("config.json", b'{"a": 1}', "JSON"),
        ("m.bin", bytes(64), "zeros"),
        ("m.bin", b"\xff\x00\x01\x02", "bytes ff 00 01 02"),
        ("m.onnx", b"", "an empty file"),
    ],
)
def test_file_of_another_kind_is_called_what_it_is(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    error = refusal(path)
    assert isinstance(error, ContainerError)
    assert str(error) == f"{path}: neither a GGUF nor an engine (found {kind})"


def test_safetensors_is_called_so(tmp_path: Path) -> None:
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "m.safetensors")
    assert str(refusal(tmp_path / "m.safetensors")).endswith("(found a safetensors file)")


def test_protobuf_under_any_name_is_walked(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"\x08\x0a")
    assert "neither" not in str(refusal(tmp_path / "engine"))


def test_absent_and_special_files_are_named(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path / "absent"), MissingFileError)
    error = refusal(Path("/dev/null"))
    assert isinstance(error, CheckpointError)
    assert str(error) == "/dev/null: not a regular file"


def test_gguf_under_any_name_is_described(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "model.bin", tiny_config(), 1)
    described = json.loads(CliRunner().invoke(inspect, [str(tmp_path / "model.bin"), "--json"]).stdout)
    assert described["metadata"]["general.architecture"] == "llama"
