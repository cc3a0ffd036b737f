"""ONNX models as sources: every type and place of data as the `onnx` package reads it, names, graphs inside graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from safetensors.numpy import save_file

from pipeline.checkpoint.open import open_checkpoint, open_weights_source, source_files
from pipeline.checkpoint.protocol import locate
from pipeline.errors import CheckpointError, MissingFileError, NotFiniteError
from pipeline.packages import packaged_file
from tests.helpers.onnx_models import (
    PROTO,
    array_of,
    branch,
    constant,
    graph,
    package_reading,
    tensor,
    typed_tensor,
    write_model,
    write_tensors,
)
from tests.helpers.real_engines import BUILD, other_silero_weights, silero_weights

SHAPES = [(5,), (3, 5), (3, 2, 1, 7)]
W = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def equals_package(path: Path) -> list[str]:
    """The names that both read, equal in shape and bits."""
    source, expected = open_weights_source(path), package_reading(path)
    names = [name for name in source.names() if name in expected]
    for name in names:
        assert source.shape(name) == expected[name].shape
        np.testing.assert_array_equal(source.read(name), expected[name], strict=True)
    return names


@pytest.mark.parametrize(
    ("kind", "shape"), [(kind, shape) for kind in PROTO for shape in SHAPES if (kind, len(shape)) != ("I64", 1)]
)
def test_every_type_in_both_fields_and_by_rows(tmp_path: Path, kind, shape):
    array = array_of(kind, shape)
    path = write_tensors(tmp_path / "m.onnx", tensor("raw", array), typed_tensor("typed", kind, array))
    assert equals_package(path) == ["raw", "typed"]
    source = open_weights_source(path)
    for name in source.names():
        assert source.type_name(name) == kind
        part = source.read(name, slice(1, 3))
        np.testing.assert_array_equal(part, array[1:3].astype(np.float32), strict=True)
        assert part.flags.c_contiguous and part.flags.writeable


@pytest.mark.parametrize("wheel", ["6.2.3", "6.0.0"])
def test_real_model(wheel):
    path = silero_weights() if wheel == "6.2.3" else other_silero_weights()
    names = equals_package(path)
    assert len(names) == len(package_reading(path)) == 15
    assert open_weights_source(path).shape("model.encoder.0.reparam_conv.weight") == (128, 129, 3)


def test_real_model_with_its_weights_in_branches_and_constants():
    path = packaged_file("silero-vad==6.2.3", "silero_vad.onnx", BUILD / "sources")
    source, expected = open_weights_source(path), {}
    for node in onnx.load(path).graph.node:
        for attribute in node.attribute:
            for inner in attribute.g.node:
                if inner.op_type == "Constant" and inner.attribute[0].t.data_type == onnx.TensorProto.FLOAT:
                    expected[inner.output[0]] = onnx.numpy_helper.to_array(inner.attribute[0].t)
    expected = {name: array for name, array in expected.items() if array.size > 1}
    assert len(expected) >= 20 and not set(expected) - set(source.names())
    for name, array in expected.items():
        np.testing.assert_array_equal(source.read(name), array, strict=True)


def test_real_safetensors_file_of_the_same_network():
    """Its weights are of another training: the shapes agree, and the one tensor that is not trained."""
    path = packaged_file("silero-vad==6.2.3", "silero_vad_16k.safetensors", BUILD / "sources")
    source, other = open_weights_source(path), open_weights_source(silero_weights())
    squeezed = [
        sorted(tuple(size for size in weights.shape(name) if size > 1) for name in weights.names())
        for weights in (source, other)
    ]
    assert squeezed[0] == squeezed[1]
    np.testing.assert_array_equal(source.read("stft_conv.weight"), other.read("model.stft.forward_basis_buffer"))


def test_what_is_no_weight_is_left_out(tmp_path: Path):
    main = graph(
        [
            tensor("shape", np.array([2, 3])),
            tensor("index table", np.array([[2, 3]])),
            tensor("scalar", np.float32(3)),
            tensor("empty", np.zeros((0, 3), np.float32)),
            tensor("text", np.array(["a", "b"])),
            tensor("one", np.ones(1, np.float32)),
            tensor("codes", np.ones(3, np.int32)),
        ],
        [constant("single", np.ones((1, 1), np.float32)), constant("several", W), constant("axes", np.array([0, 1]))],
    )
    source = open_weights_source(write_model(tmp_path / "m.onnx", main))
    assert source.names() == ["index table", "one", "codes", "several"]
    np.testing.assert_array_equal(source.read("several"), W, strict=True)


def test_graphs_inside_graphs(tmp_path: Path):
    deep = graph([tensor("w", W + 3)], [constant("c", W + 4)])
    then = graph([tensor("w", W + 1), tensor("only here", W)], [branch("deep", then_branch=deep)])
    other = graph([tensor("w", W + 2)])
    main = graph([tensor("w", W)], [branch("y", then_branch=then, else_branch=other)])
    source = open_weights_source(write_model(tmp_path / "m.onnx", main))
    expected = {"w": 0, "y.then_branch/w": 1, "only here": 0, "y.then_branch/deep.then_branch/w": 3, "c": 4}
    expected["y.else_branch/w"] = 2
    assert sorted(source.names()) == sorted(expected)
    for name, more in expected.items():
        np.testing.assert_array_equal(source.read(name), W + more)


def test_constants_of_local_functions(tmp_path: Path):
    opsets = [helper.make_opsetid("", 18)]
    functions = [
        helper.make_function("own", name, [], ["c"], [constant("c", W + more)], opsets)
        for more, name in enumerate(("f", "g"))
    ]
    path = write_model(tmp_path / "m.onnx", graph([tensor("w", W)]), functions=functions)
    assert open_weights_source(path).names() == ["w", "f/c", "g/c"]
    np.testing.assert_array_equal(open_weights_source(path).read("g/c"), W + 1)


def test_not_finite_names_element_and_byte(tmp_path: Path):
    bad = W.copy()
    bad[1, 0, 2] = np.nan
    path = write_tensors(tmp_path / "m.onnx", tensor("w", bad), typed_tensor("t", "F32", bad))
    source = open_weights_source(path)
    with pytest.raises(NotFiniteError, match=r"m\.onnx: w: byte \d+: NaN in element 14, row 1$") as caught:
        source.read("w")
    place = caught.value.offset
    assert np.isnan(np.frombuffer(path.read_bytes()[place : place + 4], np.float32))
    np.testing.assert_array_equal(source.read("w", slice(0, 1)), W[:1])
    with pytest.raises(NotFiniteError, match=r"t: .*NaN in element 14, row 1$"):
        source.read("t")


def test_double_beyond_float32_is_an_infinity(tmp_path: Path):
    source = open_weights_source(write_tensors(tmp_path / "m.onnx", tensor("w", np.array([1.0, -1e300]))))
    with pytest.raises(NotFiniteError, match=r"an infinity in element 1$"):
        source.read("w")


def test_source_that_is_no_language_model(tmp_path: Path):
    path = write_tensors(tmp_path / "blob", tensor("w", W))
    assert open_weights_source(path).names() == ["w"] and source_files(path) == [path]
    assert locate(open_weights_source(path), "w", 1) == (path, "w", 1)
    with pytest.raises(CheckpointError, match="an ONNX model"):
        open_checkpoint(path)
    with pytest.raises(CheckpointError, match="v: no such tensor"):
        open_weights_source(path).read("v")
    with pytest.raises(MissingFileError, match="no such file"):
        open_weights_source(tmp_path / "absent.onnx")


def test_single_safetensors_file(tmp_path: Path):
    path = tmp_path / "vision.safetensors"
    save_file({"conv": W, "double": W.astype(np.float64), "seen": np.array(7), "ids": np.arange(3)}, path)
    source = open_weights_source(path)
    assert sorted(source.names()) == ["conv", "double", "ids"] and source_files(path) == [path]
    for name in ("conv", "double"):
        np.testing.assert_array_equal(source.read(name), W, strict=True)
    with pytest.raises(CheckpointError, match=r"ids: not a weight .*found I64"):
        source.read("ids")


def test_file_that_changes_is_refused(tmp_path: Path):
    source = open_weights_source(write_tensors(tmp_path / "m.onnx", tensor("w", W)))
    write_tensors(tmp_path / "m.onnx", tensor("w", np.ones((3, 4, 5), np.float32)))
    with pytest.raises(CheckpointError, match="changed since it was opened"):
        source.read("w")
