"""One safetensors file: header checked as it is parsed, tensors read by row range.

Format: u64 length of the header, JSON header, data; as the safetensors project publishes it.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.looks_like import looks_like
from pipeline.checkpoint.plain import read_plain
from pipeline.checkpoint.protocol import Float32
from pipeline.checkpoint.source_file import CheckpointWarning, SourceFile
from pipeline.checkpoint.stored import StoredSource
from pipeline.errors import CheckpointError

_MAX_HEADER = 16 << 20
_METADATA = "__metadata__"
_FLOATS: dict[str, npt.DTypeLike] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F64": np.dtype("<f8"),
}
_OTHER_BYTES = {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_ITEM_BYTES = {name: np.dtype(kind).itemsize for name, kind in _FLOATS.items()} | _OTHER_BYTES


@dataclass(frozen=True)
class SafetensorsTensor:
    """A tensor of a safetensors file; `offset` is absolute, bytes."""

    source: SourceFile
    name: str
    type_name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def file(self) -> Path:
        return self.source.path

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * _ITEM_BYTES[self.type_name]

    def row_in_file(self, row: int) -> int:
        return row

    def read(self, start: int, stop: int) -> Float32:
        if self.type_name not in _FLOATS:
            known = ", ".join(_FLOATS)
            raise CheckpointError("not a weight", file=self.file, where=self.name, expected=known, found=self.type_name)
        return read_plain(self, self.source, self.offset, _FLOATS[self.type_name], start, stop)


class SafetensorsSource(StoredSource):
    """One file without a configuration: tensors of any network under its own names."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, read_safetensors(path))


def read_safetensors(path: Path) -> dict[str, SafetensorsTensor]:
    """Name -> tensor of one file, in the order of the header, but for scalars: counters and the like are no weights.

    Raises
    ------
    CheckpointError, MissingFileError : not a safetensors file, or one whose header and size disagree: duplicate or
        overlapping tensors, data outside the file, sizes that do not follow from shape and type
    """
    source = SourceFile(path)
    header, data_start = _read_header(source)
    tensors = {name: _tensor(source, name, entry, data_start) for name, entry in header.items() if name != _METADATA}
    _check_placement(source, tensors, data_start)
    return {name: tensor for name, tensor in tensors.items() if tensor.shape}


def _read_header(source: SourceFile) -> tuple[Mapping[str, Any], int]:
    start = source.read(0, min(64, source.size)).tobytes()
    length = int.from_bytes(start[:8], "little")
    if source.size < 10 or start[8:9] != b"{":
        reason = "not a safetensors file"
        raise CheckpointError(reason, file=source.path, expected="a length and JSON", found=looks_like(start))
    most = min(_MAX_HEADER, source.size - 8)
    if length > most:
        raise CheckpointError(
            "impossible header length", file=source.path, offset=0, expected=f"<= {most}", found=length
        )
    try:
        header = json.loads(source.read(8, length).tobytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"header is not JSON: {error}", file=source.path, offset=8) from error
    return header, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate name {key}")
        found[key] = value
    return found


def _tensor(source: SourceFile, name: str, entry: Any, data_start: int) -> SafetensorsTensor:
    def bad(reason: str, expected: object, found: object) -> CheckpointError:
        return CheckpointError(reason, file=source.path, where=name, expected=expected, found=found)

    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise bad("malformed entry", "dtype, shape, data_offsets", str(entry)[:80])
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _ITEM_BYTES:
        raise bad("unknown type", ", ".join(_ITEM_BYTES), kind)
    if not _are_counts(shape) or len(shape) > 8 or 0 in shape or math.prod(shape) >= 1 << 63:
        raise bad("impossible shape", "at most 8 positive integers", shape)
    if not _are_counts(offsets) or len(offsets) != 2:
        raise bad("malformed data_offsets", "two integers", offsets)
    tensor = SafetensorsTensor(source, name, kind, tuple(shape), data_start + offsets[0])
    if offsets[1] - offsets[0] != tensor.nbytes:
        raise bad("size does not follow from shape and type", tensor.nbytes, offsets[1] - offsets[0])
    if data_start + offsets[1] > source.size:
        raise bad("data end past the end of the file", f"{data_start + offsets[1]} bytes", source.size)
    return tensor


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_placement(source: SourceFile, tensors: Mapping[str, SafetensorsTensor], data_start: int) -> None:
    end = data_start
    for tensor in sorted(tensors.values(), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise CheckpointError(
                "overlaps another tensor",
                file=source.path,
                where=tensor.name,
                offset=tensor.offset,
                expected=f">= {end}",
                found=tensor.offset,
            )
        end = tensor.offset + tensor.nbytes
    if end < source.size:
        text = f"{source.path}: byte {end}: {source.size - end} bytes after the last tensor are ignored"
        warnings.warn(text, CheckpointWarning, stacklevel=3)
