"""The part of the ONNX schema that engines use: field numbers, and the small messages as plain values.

Field numbers are those of `onnx.proto`; tests compare every result with the `onnx` package.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.axmodel.wire import LENGTH, VARINT, Field, fields, read_varint, text
from pipeline.container.mapped import Buffer
from pipeline.errors import AxmodelError

MODEL_IR, MODEL_PRODUCER, MODEL_DOC, MODEL_GRAPH, MODEL_METADATA = 1, 2, 6, 7, 14
GRAPH_NODE, GRAPH_NAME, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE = 1, 2, 5, 11, 12, 13

DATA_TYPES = {
    1: ("FP32", 32), 2: ("U8", 8), 3: ("S8", 8), 4: ("U16", 16), 5: ("S16", 16), 6: ("S32", 32), 7: ("S64", 64),
    9: ("BOOL", 8), 10: ("FP16", 16), 11: ("FP64", 64), 12: ("U32", 32), 13: ("U64", 64), 16: ("BF16", 16),
}  # fmt: skip


TYPED_DATA = {4: "float_data", 5: "int32_data", 6: "string_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}


@dataclass(frozen=True)
class Initializer:
    """A tensor of the graph: where its `raw_data` lies in the file, in bytes.

    `external` when its data lies in another file; `typed` names the field that holds its data where that is not `raw_data`.
    """

    name: str
    data_type: int
    dims: tuple[int, ...]
    offset: int
    size: int
    external: bool
    typed: str = ""


@dataclass(frozen=True)
class ValueInfo:
    """A declared input or output: ONNX element type and dimensions (-1 for a symbolic one)."""

    name: str
    data_type: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Attribute:
    """An attribute: its strings, not decoded (`s`, or the items of `strings`), and the field numbers that it has."""

    strings: tuple[Field, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Node:
    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]


def _integers(data: Buffer, field: Field, where: str) -> list[int]:
    """A repeated int64, packed or one by one."""
    if field.kind == VARINT:
        return [_signed(field.value)]
    if field.kind != LENGTH:
        raise AxmodelError("dimensions are not integers", where=where, offset=field.start)
    found, at = [], field.start
    while at < field.stop:
        value, at = read_varint(data, at, field.stop, where)
        found.append(_signed(value))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def initializer(data: Buffer, start: int, stop: int, where: str) -> Initializer:
    """TensorProto: dims 1, data_type 2, name 8, raw_data 9, external_data 13, data_location 14; other data 4 to 11."""
    name, data_type, dims, offset, size, external, typed = "", 0, [], start, 0, False, ""
    for field in fields(data, start, stop, where):
        if field.number == 1:
            dims += _integers(data, field, where)
        elif field.number == 2:
            data_type = field.value
        elif field.number == 8:
            name = text(data, field, where)
        elif field.number == 9 and field.kind == LENGTH:
            offset, size = field.start, field.value
        elif field.number == 13 or (field.number == 14 and field.value == 1):
            external = True
        elif field.number in TYPED_DATA:
            typed = TYPED_DATA[field.number]
    return Initializer(name, data_type, tuple(dims), offset, size, external, typed)


def value_info(data: Buffer, start: int, stop: int, where: str) -> ValueInfo:
    """ValueInfoProto: name 1, type 2 { tensor_type 1 { elem_type 1, shape 2 { dim 1 { dim_value 1 } } } }."""
    name, data_type, dims = "", 0, []
    for field in fields(data, start, stop, where):
        if field.number == 1:
            name = text(data, field, where)
        elif field.number == 2:
            for tensor in _nested(data, field, 1, where):
                for part in fields(data, tensor.start, tensor.stop, where):
                    if part.number == 1:
                        data_type = part.value
                    elif part.number == 2:
                        dims += [_dimension(data, dim, where) for dim in _nested(data, part, 1, where)]
    return ValueInfo(name, data_type, tuple(dims))


def _nested(data: Buffer, field: Field, number: int, where: str) -> list[Field]:
    if field.kind != LENGTH:
        raise AxmodelError(f"field {field.number} is not a message", where=where, offset=field.start)
    found = [part for part in fields(data, field.start, field.stop, where) if part.number == number]
    for part in found:
        if part.kind != LENGTH:
            raise AxmodelError(f"field {number} is not a message", where=where, offset=part.start)
    return found


def _dimension(data: Buffer, field: Field, where: str) -> int:
    for part in fields(data, field.start, field.stop, where):
        if part.number == 1 and part.kind == VARINT:
            return _signed(part.value)
    return -1


def node(data: Buffer, start: int, stop: int, where: str) -> Node:
    """NodeProto: input 1, output 2, name 3, op_type 4, attribute 5."""
    name, op_type, inputs, outputs = "", "", [], []
    attributes: dict[str, Attribute] = {}
    for field in fields(data, start, stop, where):
        if field.number == 1:
            inputs.append(text(data, field, where))
        elif field.number == 2:
            outputs.append(text(data, field, where))
        elif field.number == 3:
            name = text(data, field, where)
        elif field.number == 4:
            op_type = text(data, field, where)
        elif field.number == 5:
            key, value = _attribute(data, field, where)
            attributes[key] = value
    return Node(name, op_type, tuple(inputs), tuple(outputs), attributes)


def _attribute(data: Buffer, field: Field, where: str) -> tuple[str, Attribute]:
    """AttributeProto: name 1, s 4, strings 9; values of other kinds are not read."""
    if field.kind != LENGTH:
        raise AxmodelError("an attribute is not a message", where=where, offset=field.start)
    name, parts = "", list(fields(data, field.start, field.stop, where))
    for part in parts:
        if part.number == 1:
            name = text(data, part, where)
    strings = tuple(part for part in parts if part.number in (4, 9))
    return name, Attribute(strings, tuple(sorted({part.number for part in parts})))
