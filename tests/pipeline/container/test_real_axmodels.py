"""The walk of the two public engines of the closed compiler, against the onnx package; and in the other containers."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from pipeline.axmodel.extra_data import read_extra_data
from pipeline.axmodel.walk import walk_engine
from pipeline.container.blob import read_blob, weight_parts
from tests.helpers.containers import save
from tests.helpers.generations import BUILDS
from tests.helpers.real_engines import silero_engine

CHIPS = {"ax650": 2, "ax630c": 1}


@pytest.mark.parametrize("chip", CHIPS)
def test_blobs_io_and_metadata(chip: str) -> None:
    engine, model = walk_engine(silero_engine(chip)), onnx.load(silero_engine(chip))
    data = engine.path.read_bytes()
    stored = {tensor.name: tensor.raw_data for tensor in model.graph.initializer if tensor.raw_data}
    assert {blob.name: data[blob.offset : blob.stop] for blob in engine.blobs} == stored
    assert (engine.generation, engine.weights.name, engine.weights.offset) == ("7.0", "npu_params", 478)
    (group,), (node,) = engine.groups, model.graph.node
    assert [io.name for io in group.inputs] == list(node.input)
    assert [(io.name, io.dtype, io.shape) for io in group.outputs] == [
        ("next_state", "FP32", (2, 1, 128)),
        ("output", "FP32", (1, 1)),
    ]
    (code,) = engine.microcode()
    keys = {"microcode": code.name, "batch": 1, "constants": [engine.weights.name]}
    assert read_extra_data(engine.metadata) == {
        "inputs": [value.name for value in model.graph.input],
        "outputs": [value.name for value in model.graph.output],
        "batch": "1",
        "subgraphs": [{"name": group.name, "dotneus": [keys]}],
        "chip": CHIPS[chip],
    }


@pytest.mark.parametrize("text", ["", "no base64!", "CAE=", "ClA="])
def test_extra_data_of_another_form_is_passed_over(text: str) -> None:
    assert read_extra_data({"extra_data": text}) in (
        None,
        {"inputs": [], "outputs": [], "batch": "", "subgraphs": [], "chip": 0},
    )
    assert read_extra_data({}) is None


@pytest.mark.parametrize("build", BUILDS)
def test_weights_in_another_container_are_the_same_bytes(build: str, tmp_path: Path) -> None:
    weights = read_blob(silero_engine("ax650")).tobytes()
    halves = weights[:300_000], weights[300_000:]
    path = save(BUILDS[build](halves), tmp_path / "m.axmodel")
    data = path.read_bytes()
    assert b"".join(data[part.offset : part.stop] for part in weight_parts(path)) == weights
