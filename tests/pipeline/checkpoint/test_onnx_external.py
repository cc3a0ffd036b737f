"""External data of ONNX models: read where it lies beside the model, refused wherever else it points."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from pipeline.checkpoint.open import open_weights_source, source_files
from pipeline.checkpoint.protocol import locate
from pipeline.errors import CheckpointError, MissingFileError, NotFiniteError
from tests.helpers.onnx_models import PROTO, array_of, package_reading, tensor, write_tensors

W = np.arange(12, dtype=np.float32).reshape(3, 4)


def external(name: str, array: np.ndarray, **entries: str) -> onnx.TensorProto:
    """A tensor whose data is said to be elsewhere."""
    proto = tensor(name, array)
    proto.ClearField("raw_data")
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        proto.external_data.add(key=key, value=value)
    return proto


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """`secret` lies outside the directory `model`, which has `w.bin`."""
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (tmp_path / "model" / "w.bin").write_bytes(W.tobytes())
    return tmp_path


@pytest.mark.parametrize("kind", PROTO)
def test_files_of_the_package(tmp_path: Path, kind):
    arrays = {"first": array_of(kind, (3, 5)), "second": array_of(kind, (2, 3, 3), 2)}
    (tmp_path / "data").mkdir()
    path = write_tensors(tmp_path / "m.onnx", *(tensor(*item) for item in arrays.items()))
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="data/m.bin", size_threshold=0)
    assert path.stat().st_size < 400
    source, expected = open_weights_source(path), package_reading(path)
    assert source.names() == list(arrays) and source_files(path) == [path, tmp_path / "data/m.bin"]
    for name in arrays:
        assert source.type_name(name) == kind
        np.testing.assert_array_equal(source.read(name), expected[name], strict=True)
        np.testing.assert_array_equal(source.read(name, slice(1, 2)), expected[name][1:2], strict=True)
    assert locate(source, "first", 1) == (tmp_path / "data/m.bin", "first", 1)


def test_offset_and_length_may_be_absent(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(W.tobytes() + b"more")
    path = write_tensors(tmp_path / "m.onnx", external("w", W, location="w.bin"))
    np.testing.assert_array_equal(open_weights_source(path).read("w"), W)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("../secret", "outside the model's directory .*found \\.\\./secret"),
        ("sub/../../secret", "outside the model's directory"),
        ("..\\secret", "outside the model's directory"),
        ("C:\\secret", "outside the model's directory"),
        ("/etc/hostname", "outside the model's directory .*found /etc/hostname"),
        ("", "outside the model's directory"),
        (".", "outside the model's directory"),
        ("link", "a link leads outside the model's directory .*found link"),
        ("folder/secret", "a link leads outside"),
        ("loop", "cannot be followed"),
        ("pipe", "not a regular file"),
        ("sub", "not a regular file"),
        ("n" * 300, "cannot be read: File name too long"),
        ("w.bin\0", "outside the model's directory"),
    ],
)
def test_places_refused(outside: Path, location, message):
    model = outside / "model"
    (model / "sub").mkdir()
    (model / "link").symlink_to("../secret")
    (model / "folder").symlink_to("..")
    (model / "loop").symlink_to("loop")
    os.mkfifo(model / "pipe")
    path = write_tensors(model / "m.onnx", external("w", W, location=location))
    with pytest.raises(CheckpointError, match=message) as caught:
        open_weights_source(path)
    assert "\n" not in str(caught.value)


def test_absolute_path_to_the_right_file_is_refused_too(outside: Path):
    path = write_tensors(outside / "model/m.onnx", external("w", W, location=str(outside / "model/w.bin")))
    with pytest.raises(CheckpointError, match="outside the model's directory"):
        open_weights_source(path)


def test_model_cache_of_links(tmp_path: Path):
    """As download caches have it: names in one directory, all of them links to files in another."""
    blobs, names = tmp_path / "blobs", tmp_path / "snapshots/1"
    blobs.mkdir()
    names.mkdir(parents=True)
    write_tensors(blobs / "a1", external("w", W, location="m.onnx_data"))
    (blobs / "b2").write_bytes(W.tobytes())
    (names / "m.onnx").symlink_to("../../blobs/a1")
    (names / "m.onnx_data").symlink_to("../../blobs/b2")
    np.testing.assert_array_equal(open_weights_source(names / "m.onnx").read("w"), W)
    (tmp_path / "c3").write_bytes(W.tobytes())
    (names / "m.onnx_data").unlink()
    (names / "m.onnx_data").symlink_to("../../c3")
    with pytest.raises(CheckpointError, match="a link leads outside"):
        open_weights_source(names / "m.onnx")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "-4"}, "external offset is no number of bytes .*found -4"),
        ({"offset": "0x4"}, "external offset is no number of bytes"),
        ({"offset": "9" * 5000}, "external offset is no number of bytes"),
        ({"offset": "²"}, "external offset is no number of bytes"),
        ({"offset": "4"}, "w: byte 4: external data end past the end of the file .*expected 52, found 48"),
        ({"offset": str((1 << 63) - 1)}, "external data end past the end"),
        ({"length": "44"}, "external length does not follow .*expected 48, found 44"),
        ({"length": ""}, "external length is no number of bytes"),
    ],
)
def test_numbers_refused(outside: Path, entries, message):
    path = write_tensors(outside / "model/m.onnx", external("w", W, location="w.bin", **entries))
    with pytest.raises(CheckpointError, match=message):
        open_weights_source(path)


def test_absent_file_and_not_finite_are_named(outside: Path):
    path = write_tensors(outside / "model/m.onnx", external("w", W, location="absent.bin"))
    with pytest.raises(MissingFileError, match=r"absent\.bin: no such file"):
        open_weights_source(path)
    (outside / "model/absent.bin").write_bytes(np.full(12, np.inf, np.float32).tobytes())
    with pytest.raises(NotFiniteError, match=r"absent\.bin: w: byte 16: an infinity in element 4, row 1$"):
        open_weights_source(path).read("w", slice(1, 2))
