"""The walker against the `onnx` package, on compiled engines and on arbitrary small models."""

from __future__ import annotations

import json
import string
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pipeline.axmodel.describe import describe_directory
from pipeline.axmodel.walk import Engine, walk_engine
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import ContainerError, MissingFileError
from pipeline.toolchain.reference import compile_model
from tests.helpers.containers import blob, graph_info, save, small
from tests.helpers.engines import ARCHITECTURES, small_options
from tests.helpers.tiny import tiny_config

TYPE_NAMES = {TensorProto.BFLOAT16: "BF16", TensorProto.UINT32: "U32", TensorProto.UINT8: "U8"}


def agree(engine: Engine, model: onnx.ModelProto, data: bytes) -> None:
    """Every blob, io and microcode key of the walk is what the onnx package reads."""
    stored = {tensor.name: tensor.raw_data for tensor in model.graph.initializer if tensor.raw_data}
    assert {item.name: data[item.offset : item.offset + item.size] for item in engine.blobs} == stored
    values = {value.name: value for value in [*model.graph.input, *model.graph.output]}
    nodes = [node for node in model.graph.node if node.op_type == "neu mode"]
    assert [group.name for group in engine.groups] == [node.name for node in nodes]
    for group, node in zip(engine.groups, nodes, strict=True):
        assert [io.name for io in group.inputs] == list(node.input)
        assert [io.name for io in group.outputs] == list(node.output)
        for io in (*group.inputs, *group.outputs):
            tensor = values[io.name].type.tensor_type
            assert io.dtype == TYPE_NAMES[tensor.elem_type]
            assert io.shape == tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    assert (engine.producer, engine.doc) == (model.producer_name, model.doc_string)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(f"compiled-{request.param}")
    compile_model(NoiseCheckpoint(tiny_config(request.param), 1), directory, small_options(5))
    return directory


def test_walk_of_compiled_engines_agrees_with_onnx(compiled: Path) -> None:
    engines = sorted(compiled.glob("*.axmodel"))
    assert len(engines) == 3
    for path in engines:
        engine = walk_engine(path)
        agree(engine, onnx.load(path), path.read_bytes())
        assert engine.generation == "7.0"
        assert engine.weights.name == "npu_params"
        microcode = [f"subgraph_npu_{index}_b1_neu" for index in range(len(engine.groups))]
        assert [item.name for item in engine.microcode()] == microcode
        assert [group.index for group in engine.groups] == list(range(len(engine.groups)))


def test_description_is_json_with_every_blob(compiled: Path) -> None:
    described = json.loads(json.dumps(describe_directory(compiled)))
    assert [item["file"] for item in described] == sorted(path.name for path in compiled.glob("*.axmodel"))
    for item in described:
        data = (compiled / item["file"]).read_bytes()
        stored = {t.name: t.raw_data for t in onnx.load(compiled / item["file"]).graph.initializer if t.raw_data}
        assert {b["name"]: data[b["offset"] :][: b["bytes"]] for b in item["blobs"]} == stored
        assert item["bytes"] == len(data)


def test_read_blob_maps_weights_and_headerless_file(compiled: Path) -> None:
    for path in compiled.glob("*.axmodel"):
        (weights,) = (t.raw_data for t in onnx.load(path).graph.initializer if t.name == "npu_params")
        assert read_blob(path).tobytes() == weights
    embedding = compiled / "model.embed_tokens.weight.bfloat16.bin"
    assert read_blob(embedding).tobytes() == embedding.read_bytes()
    assert weight_blob(embedding).offset == 0


NAMES = st.text(string.ascii_letters + string.digits + "_/é", min_size=1, max_size=12)
DIMS = st.lists(st.integers(1, 9) | st.just("symbol"), max_size=4)


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """An engine with arbitrary blobs, groups, io, foreign nodes and metadata."""
    names = draw(st.lists(NAMES, min_size=3, max_size=6, unique=True))
    blobs = [blob(name, draw(st.binary(min_size=1, max_size=300))) for name in names]
    nodes, values = [], []
    for index in range(draw(st.integers(1, 3))):
        io = [f"io_{index}_{i}" for i in range(draw(st.integers(2, 4)))]
        values += [helper.make_tensor_value_info(n, draw(st.sampled_from(list(TYPE_NAMES))), draw(DIMS)) for n in io]
        info = graph_info(draw(st.sampled_from(names[1:])), names[0])
        nodes.append(helper.make_node("neu mode", io[:1], io[1:], name=f"n{index}", npu_graph_info=info, level=-7))
    foreign = helper.make_node("Reshape", ["a"], ["b"], name="other", ratio=0.5, axes=[1, 2, 3])
    nodes.insert(draw(st.integers(0, len(nodes))), foreign)
    graph = helper.make_graph(nodes, draw(NAMES), values[::2], values[1::2], initializer=blobs)
    model = helper.make_model(graph, producer_name=draw(NAMES), doc_string=draw(st.text(max_size=20)))
    helper.set_model_props(model, {draw(NAMES): draw(NAMES)})
    return model


@given(models())
def test_walk_of_any_model_agrees_with_onnx(tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto) -> None:
    path = save(model, tmp_path_factory.getbasetemp() / "any.axmodel")
    agree(walk_engine(path), model, path.read_bytes())


def test_small_engine_is_an_engine(tmp_path: Path) -> None:
    engine = walk_engine(save(small(), tmp_path / "small.axmodel"))
    agree(engine, small(), engine.path.read_bytes())


def test_absent_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"none\.axmodel"):
        walk_engine(tmp_path / "none.axmodel")
    for name in ("empty.axmodel", "empty.bin"):
        (tmp_path / name).touch()
        with pytest.raises(ContainerError, match=rf"{name}.*empty"):
            read_blob(tmp_path / name)
