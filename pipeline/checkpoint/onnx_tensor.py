"""A tensor of an ONNX model as a source of weights: its type, where its elements lie, and reading them.

`raw_data` and external files are read by row range. Elements in typed fields (`float_data`, `int32_data` …) and of less
than a byte are decoded by the `onnx` package, one tensor at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from pipeline.checkpoint.plain import read_plain, to_float32
from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.source_file import SourceFile
from pipeline.checkpoint.stored import check_finite
from pipeline.errors import CheckpointError


class OnnxType(NamedTuple):
    """`dtype` is None where several elements share a byte, or where the elements are no numbers (`bits` 0)."""

    name: str
    bits: int
    dtype: npt.DTypeLike | None


STRING = 8
# TensorProto.DataType of onnx.proto; what is not here is listed as `ONNX type n` and refused when read
_TYPES: dict[int, OnnxType] = {
    1: OnnxType("F32", 32, "<f4"),
    2: OnnxType("U8", 8, "u1"),
    3: OnnxType("I8", 8, "i1"),
    4: OnnxType("U16", 16, "<u2"),
    5: OnnxType("I16", 16, "<i2"),
    6: OnnxType("I32", 32, "<i4"),
    7: OnnxType("I64", 64, "<i8"),
    9: OnnxType("BOOL", 8, "?"),
    10: OnnxType("F16", 16, "<f2"),
    11: OnnxType("F64", 64, "<f8"),
    12: OnnxType("U32", 32, "<u4"),
    13: OnnxType("U64", 64, "<u8"),
    16: OnnxType("BF16", 16, ml_dtypes.bfloat16),
    17: OnnxType("F8_E4M3", 8, ml_dtypes.float8_e4m3fn),
    18: OnnxType("F8_E4M3FNUZ", 8, ml_dtypes.float8_e4m3fnuz),
    19: OnnxType("F8_E5M2", 8, ml_dtypes.float8_e5m2),
    20: OnnxType("F8_E5M2FNUZ", 8, ml_dtypes.float8_e5m2fnuz),
    21: OnnxType("U4", 4, None),
    22: OnnxType("I4", 4, None),
    23: OnnxType("F4_E2M1", 4, None),
}


def onnx_type(number: int) -> OnnxType:
    return _TYPES.get(number, OnnxType(f"ONNX type {number}", 0, None))


@dataclass(frozen=True)
class OnnxTensor:
    """Where a tensor's elements are: `size` bytes at `offset` of `source`.

    `typed` : these bytes are the whole TensorProto, whose elements are in a typed field; otherwise the elements themselves.
    """

    source: SourceFile
    name: str
    data_type: int
    shape: tuple[int, ...]
    offset: int
    size: int
    typed: bool = False

    @property
    def file(self) -> Path:
        return self.source.path

    @property
    def type_name(self) -> str:
        return onnx_type(self.data_type).name

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def row_in_file(self, row: int) -> int:
        return row

    def read(self, start: int, stop: int) -> Float32:
        kind = onnx_type(self.data_type)
        if not kind.bits:
            raise CheckpointError("not numbers", file=self.file, where=self.name, found=kind.name)
        if kind.dtype is not None and not self.typed:
            return read_plain(self, self.source, self.offset, kind.dtype, start, stop)
        values = self._decoded()
        check_finite(values, 0, self, self.offset, 1, 0)
        return values[start:stop].copy()

    def whole(self) -> Float32:
        """All elements, also of a scalar."""
        shape = self.shape or (1,)
        return replace(self, shape=shape).read(0, shape[0]).reshape(self.shape)

    def _decoded(self) -> Float32:
        raw = self.source.read(self.offset, self.size, self.name).tobytes()
        try:
            if self.typed:
                proto = onnx.TensorProto.FromString(raw)
            else:
                proto = onnx.TensorProto(data_type=self.data_type, dims=self.shape, raw_data=raw)
            values = np.ascontiguousarray(to_float32(numpy_helper.to_array(proto)))
            return values.reshape(self.shape)
        except (DecodeError, ValueError, TypeError, OverflowError) as error:
            reason = f"data is not what shape and type say: {error}"
            raise CheckpointError(reason, file=self.file, where=self.name, offset=self.offset) from None
