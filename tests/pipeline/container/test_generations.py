"""All container generations: walked, told by content, spanned, and patched without another byte moving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto

from layouts.algebra import Digit, Layout, Piece
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.axmodel.walk import walk_engine
from pipeline.cli.inspect import inspect
from pipeline.container.blob import read_blob, weight_blob, weight_parts
from pipeline.errors import AxmodelError, ContainerError
from pipeline.refit.refitter import EngineRefitter
from tests.helpers.containers import blob, container, graph_info, neu, save
from tests.helpers.generations import BUILDS, MICROCODE, const, dotneu, info

ROWS, COLS = 3, 5
WEIGHTS = [np.random.default_rng(seed).standard_normal((ROWS, COLS)).astype(np.float32) for seed in range(4)]
TAIL = b"\x55" * 7


@pytest.fixture(params=BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(build: str, path: Path, weights: list[np.ndarray]) -> Path:
    return save(BUILDS[build]([array.tobytes() + TAIL for array in weights]), path)


@pytest.mark.parametrize("count", [1, 3])
def test_parts_are_the_weights_and_the_blob_spans_them(build: str, count: int, tmp_path: Path) -> None:
    path = written(build, tmp_path / "m.axmodel", WEIGHTS[:count])
    data, parts, span = path.read_bytes(), weight_parts(path), weight_blob(path)
    assert [data[part.offset : part.stop] for part in parts] == [w.tobytes() + TAIL for w in WEIGHTS[:count]]
    assert (span.offset, span.stop) == (parts[0].offset, parts[-1].stop)
    assert span.name == (parts[0].name if count == 1 else f"{parts[0].name}..{parts[-1].name}")
    assert read_blob(path).tobytes() == data[span.offset : span.stop]
    engine = walk_engine(path)
    assert engine.generation == (build if build[0].isdigit() else "7.0")
    assert all(data[code.offset : code.stop] == MICROCODE for code in engine.microcode())
    assert (engine.microcode() == ()) == (build == "1.1")


def test_kind_is_told_by_content_not_by_suffix(build: str, tmp_path: Path) -> None:
    path = written(build, tmp_path / "blobs-7f", WEIGHTS[:2])
    assert weight_parts(path) == weight_parts(path.rename(tmp_path / "m.bin").rename(tmp_path / "m.axmodel"))


def test_inspect_names_every_blob(build: str, tmp_path: Path) -> None:
    path = written(build, tmp_path / "m.axmodel", WEIGHTS[:2])
    described = json.loads(CliRunner().invoke(inspect, [str(path), "--json"]).stdout)
    blobs = {item["name"]: (item["offset"], item["bytes"]) for item in described["blobs"]}
    assert all(blobs[part.name] == (part.offset, part.size) for part in weight_parts(path))
    assert described["weights"] == weight_blob(path).name
    shown = CliRunner().invoke(inspect, [str(path)])
    assert shown.exit_code == 0
    assert weight_parts(path)[-1].name in shown.stdout


def layout_of(path: Path, count: int) -> EngineLayout:
    span = weight_blob(path)
    stored = []
    for index, part in enumerate(weight_parts(path)[:count]):
        digits = (Digit(ROWS, 32 * COLS),), (Digit(COLS, 32),)
        piece = Piece(0, 0, Layout((ROWS, COLS), 8 * (part.offset - span.offset), *digits, 32))
        stored.append(StoredTensor(f"w{index}", (ROWS, COLS), "fp32", (Copy("decode", (Plane((piece,)),)),)))
    return EngineLayout("model", span.name, span.size, tuple(stored), span.offset)


def test_refit_changes_the_weights_and_no_other_byte(build: str, tmp_path: Path) -> None:
    template = written(build, tmp_path / "a.axmodel", WEIGHTS[:2])
    with EngineRefitter(template, layout_of(template, 2), tmp_path / "b.axmodel") as refitter:
        for index in range(2):
            refitter.set(f"w{index}", WEIGHTS[2 + index])
        refitter.commit()
    expected = written(build, tmp_path / "c.axmodel", WEIGHTS[2:])
    assert (tmp_path / "b.axmodel").read_bytes() == expected.read_bytes()
    with EngineRefitter(tmp_path / "b.axmodel", layout_of(template, 2), tmp_path / "d.axmodel") as refitter:
        for index in range(2):
            refitter.set(f"w{index}", WEIGHTS[index])
        refitter.commit()
    assert (tmp_path / "d.axmodel").read_bytes() == template.read_bytes()


NAMES_DATA = {
    "text": "npu_0_data",
    "json text": '"npu_0_data"',
    "json list": '["npu_0_data"]',
    "json dotneu": '{"neu_key": "npu_0_data"}',
    "json list of dotneus": '[{"batch": 1, "neu_key": "npu_0_data"}]',
    "json of its own": '{"version": 1, "npu_0": {"data": "npu_0_data", "size": [8]}}',
    "json graph": '{"dotneus": [{"extra_inputs": [], "neu_key": "npu_0_data"}], "name": "x"}',
}


@pytest.mark.parametrize("form", NAMES_DATA)
def test_old_attribute_in_every_form(form: str, tmp_path: Path) -> None:
    data = TensorProto(name="npu_0_data", data_type=TensorProto.UINT8, dims=[1, 2, 4], raw_data=b"all of i")
    path = save(container([neu(neu=NAMES_DATA[form], version=3)], [data, blob("other", b"zz")]), tmp_path / "m.axmodel")
    (part,) = weight_parts(path)
    assert (part.name, path.read_bytes()[part.offset : part.stop]) == ("npu_0_data", b"all of i")
    assert walk_engine(path).generation == "1.1"


def test_constant_of_1_6_under_another_key(tmp_path: Path) -> None:
    item = {"type": "DotNeuInputConst", "data_key": "w", "name": "params"}
    model = container([neu(npu_graph_info=info(dotneu("m", item)))], [blob("m", b"m"), blob("w", b"ww")])
    path = save(model, tmp_path / "m.axmodel")
    assert [part.name for part in weight_parts(path)] == ["w"]
    assert walk_engine(path).generation == "1.6"


def test_subgraph_without_constants_beside_one_with(tmp_path: Path) -> None:
    nodes = [neu("a", npu_graph_info=info(dotneu("m0"))), neu("b", npu_graph_info=info(dotneu("m1", const("w"))))]
    path = save(container(nodes, [blob("m0", b"0"), blob("w", b"ww"), blob("m1", b"1")]), tmp_path / "m.axmodel")
    assert [part.name for part in weight_parts(path)] == ["w"]
    assert [code.name for code in walk_engine(path).microcode()] == ["m0", "m1"]


def test_io_between_subgraphs_is_what_the_node_declares(tmp_path: Path) -> None:
    shapes = json.dumps({"z": ["S8", [1, 4]]})
    node = onnx.helper.make_node(
        "neu mode", ["x", "w"], ["z"], npu_graph_info=graph_info("m", "w"), outputs_info=shapes
    )
    path = save(container([node], [blob("m", b"m"), blob("w", b"w")]), tmp_path / "m.axmodel")
    (group,) = walk_engine(path).groups
    assert [io.name for io in group.inputs] == ["x"]
    assert [(io.name, io.dtype, io.shape) for io in group.outputs] == [("z", "S8", (1, 4))]


TYPED = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[2], int32_data=[1, 2])
REFUSED = {
    "typed weights": ([neu(npu_graph_info=graph_info("m", "w"))], [TYPED], "'w'.*not raw.*found int32_data"),
    "neu of numbers": ([neu(neu=[1, 2])], [], "attribute neu: not one string.*found 0 strings"),
    "neu of a stranger": ([neu(neu="npu_1_data")], [], "no initializer of the file: 'npu_1_data'.*found m"),
    "neu of other json": ([neu(neu='{"a": 1}')], [], 'no initializer of the file: .{"a": 1}'),
    "neu of dotneus": ([neu(neu=info(dotneu("w")))], [], "'w', which is not in the file"),
    "no attribute": ([neu(version=1)], [], "expected attribute npu_graph_info or neu, found version"),
    "const of nothing": ([neu(npu_graph_info=info(dotneu("m", {"type": "DotNeuInputConst"})))], [], "one initializer"),
    "const elsewhere": ([neu(npu_graph_info=info(dotneu("m", const("w"))))], [], "'w', which is not in the file"),
    "second dotneu": ([neu(npu_graph_info=info(dotneu("m"), {"batch": 2}))], [], 'without a neu_key.*{"batch": 2}'),
    "strings": ([neu(npu_graph_info=["a", "b"])], [], "not one string.*2 strings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_named(name: str, tmp_path: Path) -> None:
    nodes, blobs, reason = REFUSED[name]
    with pytest.raises(AxmodelError, match=reason) as caught:
        weight_blob(save(container(nodes, [*blobs, blob("m", b"m")]), tmp_path / "m.axmodel"))
    assert caught.value.file == tmp_path / "m.axmodel"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<html>", "an HTML page"),
        (b"GGUF\3", "a GGUF"),
    ],
)
@pytest.mark.parametrize("suffix", [".axmodel", ".rknn"])
def test_something_else_under_the_suffix_is_called_what_it_is(
    tmp_path: Path, start: bytes, found: str, suffix: str
) -> None:
    path = tmp_path / f"m{suffix}"
    path.write_bytes(start + b"and so on\n" * 9)
    with pytest.raises(ContainerError, match=f"not an engine.*{found}"):
        weight_blob(path)
