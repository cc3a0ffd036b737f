"""A constant under DequantizeLinear: the weight that a quantized ONNX model computes with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.checkpoint.onnx_graph import OnnxNode
from pipeline.checkpoint.onnx_tensor import OnnxTensor, onnx_type
from pipeline.checkpoint.plain import to_float32
from pipeline.checkpoint.protocol import Float32
from pipeline.errors import CheckpointError

_DEFAULT_AXIS = 1


@dataclass(frozen=True)
class Dequantized:
    """float32((q - zero) * scale), rounded to the scale's type, with one scale for all, per entry of `axis`, or per block."""

    name: str
    codes: OnnxTensor
    scale: OnnxTensor
    zero: OnnxTensor | None
    axis: int
    block: int

    @property
    def file(self) -> Path:
        return self.codes.file

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    @property
    def type_name(self) -> str:
        return self.codes.type_name

    def row_in_file(self, row: int) -> int:
        return row

    def read(self, start: int, stop: int) -> Float32:
        values = self.codes.read(start, stop)
        if self.zero is not None:
            values -= self._spread(self.zero)[start:stop]
        values *= self._spread(self.scale)[start:stop]
        kind = onnx_type(self.scale.data_type).dtype
        return values if kind is None else to_float32(values.astype(kind))

    def _spread(self, factors: OnnxTensor) -> Float32:
        """One factor per element of the whole tensor; only blocks take memory for it."""
        length, axis = self.shape[self.axis], self.axis
        blocks = -(-length // self.block) if self.block else length
        if factors.count == 1:
            return np.broadcast_to(factors.whole().reshape(()), self.shape)
        if self.block and factors.shape == (*self.shape[:axis], blocks, *self.shape[axis + 1 :]):
            return np.take(factors.whole(), np.arange(length) // self.block, axis)
        if not self.block and factors.shape == (length,):
            along = [length if number == axis else 1 for number in range(len(self.shape))]
            return np.broadcast_to(factors.whole().reshape(along), self.shape)
        raise CheckpointError(
            f"does not fit {self.codes.name}",
            file=self.file,
            where=factors.name,
            expected=list(self.shape),
            found=list(factors.shape),
        )


def dequantized(node: OnnxNode, scope: Mapping[str, OnnxTensor]) -> Dequantized | None:
    """The weight that the node computes, when all its inputs are constants; `scope` has all that the node can see."""
    inputs = [scope.get(name) for name in node.inputs if name]
    if not 2 <= len(inputs) <= 3 or None in inputs or not node.outputs:
        return None
    codes, scale, *zero = [tensor for tensor in inputs if tensor is not None]
    dims, block = len(codes.shape), node.integers.get("block_size", 0)
    if not dims or not codes.count:
        return None
    axis = node.integers.get("axis", min(_DEFAULT_AXIS, dims - 1))
    if not -dims <= axis < dims or block < 0:
        reason = "DequantizeLinear has no such axis or block"
        raise CheckpointError(reason, file=codes.file, where=node.outputs[0], found=f"axis {axis}, block {block}")
    return Dequantized(node.outputs[0], codes, scale, next(iter(zero), None), axis % dims, block)
