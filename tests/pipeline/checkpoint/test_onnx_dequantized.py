"""Quantized ONNX models: a constant under DequantizeLinear is the weight that the reference implementation computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from pipeline.checkpoint.open import open_weights_source
from pipeline.errors import CheckpointError
from tests.helpers.onnx_models import PROTO, array_of, branch, constant, graph, tensor, write_model

RNG = np.random.default_rng(3)
SHAPE = (4, 6, 5)


def scales(shape: tuple[int, ...], kind: str = "F32") -> np.ndarray:
    return RNG.uniform(0.01, 2, shape).astype(PROTO[kind][1])


# codes' type, scale, shape of the zero point or None, attributes
CASES = {
    "one scale": ("I8", scales(()), None, {}),
    "one scale and zero": ("U8", scales(()), (), {}),
    "a vector of one": ("U8", scales((1,)), (1,), {}),
    "default axis": ("I8", scales((6,)), (6,), {}),
    "rows": ("U8", scales((4,)), (4,), {"axis": 0}),
    "last": ("I8", scales((5,)), (5,), {"axis": -1}),
    "16 bits": ("U16", scales((4,)), (4,), {"axis": 0}),
    "4 bits": ("U4", scales((4,)), (4,), {"axis": 0}),
    "bias": ("I32", scales(()), None, {}),
    "blocks": ("I4", scales((4, 3, 5)), (4, 3, 5), {"axis": 1, "block_size": 2}),
    "blocks that do not fill": ("I8", scales((4, 6, 2)), (4, 6, 2), {"axis": 2, "block_size": 3}),
    "blocks of rows": ("I8", scales((2, 6, 5)), None, {"axis": 0, "block_size": 2}),
    "halves": ("I8", scales((4,), "F16"), (4,), {"axis": 0}),
    "float8": ("F8_E4M3", scales((6,)), None, {}),
}


def dequantizing(kind: str, scale: np.ndarray, zero: tuple[int, ...] | None, attributes: dict[str, int]):
    tensors = {"q": array_of(kind, SHAPE), "s": scale}
    if zero is not None:
        tensors["z"] = array_of(kind, zero, 7)
    node = helper.make_node("DequantizeLinear", list(tensors), ["w"], **attributes)
    main = graph([tensor(*item) for item in tensors.items()], [node])
    main.output.add(name="w")
    return main


def expected(main: onnx.GraphProto) -> np.ndarray:
    (values,) = ReferenceEvaluator(helper.make_model(main, opset_imports=[helper.make_opsetid("", 21)])).run(None, {})
    return np.asarray(values).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_as_the_reference_computes(tmp_path: Path, case):
    main = dequantizing(*CASES[case])
    source = open_weights_source(write_model(tmp_path / "m.onnx", main))
    assert source.shape("w") == SHAPE and source.type_name("w") == CASES[case][0] and "q" in source.names()
    np.testing.assert_array_equal(source.read("w"), expected(main), strict=True)
    np.testing.assert_array_equal(source.read("w", slice(1, 3)), expected(main)[1:3], strict=True)


def test_constants_of_the_graph_around_are_seen(tmp_path: Path):
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"])
    main = graph(
        [tensor("q", array_of("I8", SHAPE))],
        [constant("s", np.float32(0.5)), branch("y", then_branch=graph(nodes=[node]))],
    )
    source = open_weights_source(write_model(tmp_path / "m.onnx", main))
    np.testing.assert_array_equal(source.read("w"), source.read("q") / 2)


def test_activations_are_no_weights(tmp_path: Path):
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "computed"], ["w"]),
        helper.make_node("DequantizeLinear", ["x", "s"], ["v"]),
    ]
    main = graph([tensor("q", array_of("I8", SHAPE)), tensor("s", np.float32(1))], nodes)
    assert open_weights_source(write_model(tmp_path / "m.onnx", main)).names() == ["q"]


@pytest.mark.parametrize(
    ("scale", "attributes", "message"),
    [
        ((7,), {}, r"s: does not fit q .*expected \[4, 6, 5\], found \[7\]"),
        ((6,), {"axis": 3}, "w: DequantizeLinear has no such axis or block .*found axis 3"),
        ((6,), {"axis": -4}, "no such axis"),
        ((6,), {"block_size": -1}, "no such axis or block"),
        ((0,), {}, "s: does not fit q"),
        ((2, 3), {}, "s: does not fit q"),
        ((4, 2, 5), {"axis": 1, "block_size": 2}, "s: does not fit q"),
        ((4, 2, 5), {"axis": 1, "block_size": 1 << 40}, "s: does not fit q"),
    ],
)
def test_scales_that_do_not_fit(tmp_path: Path, scale, attributes, message):
    with pytest.raises(CheckpointError, match=message):
        open_weights_source(write_model(tmp_path / "m.onnx", dequantizing("I8", scales(scale), None, attributes))).read(
            "w"
        )
