"""Builds the ONNX container of an engine, generation 7.0 of the axmodel facts (docs/container.md)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper

from pipeline.axmodel.walk import EngineIo

NODE_VERSION = 1
WEIGHTS = "npu_params"
DYNAMIC = "npu_dyn_params"
_TYPES = {"BF16": TensorProto.BFLOAT16, "U32": TensorProto.UINT32}


@dataclass(frozen=True)
class Group:
    """One shape group: its inputs and outputs under their plain names, and its microcode."""

    inputs: tuple[EngineIo, ...]
    outputs: tuple[EngineIo, ...]
    microcode: bytes


def subgraph_name(group: int) -> str:
    return f"subgraph_npu_{group}"


def microcode_name(group: int) -> str:
    return f"{subgraph_name(group)}_b1_neu"


def io_name(name: str, group: int) -> str:
    """Names of later groups carry the group's number."""
    return name if group == 0 else f"{name}_{group}"


@dataclass(frozen=True)
class Frame:
    """The bytes of a container before and after its weights: the weights themselves never pass through protobuf."""

    head: bytes
    tail: bytes


def frame_container(groups: list[Group], weights: int, version: str) -> Frame:
    """The container of one engine around its weights: a "neu mode" node per group, all on one weight blob.

    Protobuf writes fields in the order of their numbers. The weights are the data, a tensor's last field, of the first
    initializer, so `head + blob + tail` is the serialized `ModelProto`.

    Parameters
    ----------
    weights : size of the blob, bytes
    version : of the compiler
    """
    blob = TensorProto(name=WEIGHTS, data_type=TensorProto.UINT8, dims=[weights]).SerializeToString()
    blob += _prefix(TensorProto.RAW_DATA_FIELD_NUMBER, weights)
    nodes = GraphProto(node=[_node(index, group) for index, group in enumerate(groups)], name="ax-model")
    front = nodes.SerializeToString() + _prefix(GraphProto.INITIALIZER_FIELD_NUMBER, len(blob) + weights) + blob
    back = _rest_of_graph(groups).SerializeToString()
    model = ModelProto(ir_version=10, producer_name="Pulsar2")
    model.doc_string = f"Pulsar2 Version:  {version}\nPulsar2 Commit: reference"
    head = model.SerializeToString() + _prefix(ModelProto.GRAPH_FIELD_NUMBER, len(front) + weights + len(back)) + front
    model = ModelProto(opset_import=[helper.make_opsetid("", 18)])
    helper.set_model_props(model, {"extra_data": base64.b64encode(_extra_data(groups)).decode()})
    return Frame(head, back + model.SerializeToString())


def _rest_of_graph(groups: list[Group]) -> GraphProto:
    """All that follows the weights: the other initializers, inputs, outputs."""
    blobs = [_bytes_tensor(DYNAMIC, b"")]
    blobs += [_bytes_tensor(microcode_name(index), group.microcode) for index, group in enumerate(groups)]
    return GraphProto(
        initializer=blobs,
        input=[_value(io, index) for index, group in enumerate(groups) for io in group.inputs],
        output=[_value(io, index) for index, group in enumerate(groups) for io in group.outputs],
    )


def _node(index: int, group: Group) -> onnx.NodeProto:
    params = [{"name": "params", "const_data_key": WEIGHTS}]
    info = {
        "name": subgraph_name(index),
        "dotneus": [{"neu_key": microcode_name(index), "batch": 1, "extra_inputs": params}],
    }
    shapes = {io_name(io.name, index): [io.dtype, list(io.shape)] for io in group.outputs}
    return helper.make_node(
        "neu mode",
        [io_name(io.name, index) for io in group.inputs],
        [io_name(io.name, index) for io in group.outputs],
        name=subgraph_name(index),
        neu_name=subgraph_name(index),
        npu_graph_info=json.dumps(info),
        outputs_info=json.dumps(shapes),
        version=NODE_VERSION,
    )


def _value(io: EngineIo, group: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(io_name(io.name, group), _TYPES[io.dtype], io.shape)


def _bytes_tensor(name: str, data: bytes) -> onnx.TensorProto:
    return TensorProto(name=name, data_type=TensorProto.UINT8, dims=[len(data)], raw_data=data)


def _field(number: int, payload: bytes | int) -> bytes:
    """One protobuf field: length-delimited for bytes, a varint for a small integer."""
    if isinstance(payload, int):
        return bytes([number << 3, payload])
    return _prefix(number, len(payload)) + payload


def _prefix(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    return bytes([number << 3 | 2]) + _varint(length)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _extra_data(groups: list[Group]) -> bytes:
    """The message under `extra_data`, field by field as the public 7.0 sample has it: io list, batch, subgraphs."""
    out = b""
    for index, group in enumerate(groups):
        for io in group.inputs:
            out += _field(1, _field(1, io_name(io.name, index).encode()) + _field(2, 2))
        for io in group.outputs:
            out += _field(1, _field(1, io_name(io.name, index).encode()))
    out += _field(2, b"1")
    params = _field(1, b"params") + _field(3, WEIGHTS.encode())
    for index in range(len(groups)):
        dotneu = _field(1, microcode_name(index).encode()) + _field(2, 1) + _field(3, params) + _field(4, _field(3, 2))
        out += _field(3, _field(1, subgraph_name(index).encode()) + _field(10, dotneu))
    return out
