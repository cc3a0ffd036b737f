"""The F32 twin of a GGUF: the same model with every tensor dequantized, so that llama.cpp computes in float32.

llama.cpp rounds activations to the blocks of a quantized weight; only against the twin is an engine's error its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from gguf import GGMLQuantizationType, dequantize

from layouts.atomic import write_beside
from pipeline.checkpoint.gguf_file import GgufFile, TensorInfo
from pipeline.checkpoint.gguf_header import HeaderCursor, read_metadata
from pipeline.errors import CheckpointError, MissingFileError

# magic, version, number of tensors, number of keys
_HEADER = struct.Struct("<4sIQQ")
_VERSION = 3
CHUNK_BYTES = 1 << 24


def write_twin(source: str | Path, twin: str | Path) -> Path:
    """Write `twin`, a GGUF with the metadata of `source` and its tensors as F32, unless it is there already.

    Some rows at a time are in memory. The file appears whole or not at all, and carries the modification time of its
    source, by which it is known again: name it after the source's hash where many sources share a directory.

    Raises
    ------
    MissingFileError : no such source
    CheckpointError : not a sound GGUF, or a tensor of a type that cannot be dequantized
    """
    source, twin = Path(source), Path(twin)
    if not source.is_file():
        raise MissingFileError("no such GGUF", file=source)
    stat = source.stat()
    if twin.is_file() and twin.stat().st_mtime_ns == stat.st_mtime_ns:
        return twin
    model = GgufFile(source)
    if model.big_endian:
        raise CheckpointError("byte order", file=source, expected="little-endian", found="big-endian")
    with write_beside(twin) as file:
        _write(model, file)
        file.flush()
        os.utime(file.fileno(), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return twin


def _write(model: GgufFile, out: BinaryIO) -> None:
    out.write(_HEADER.pack(b"GGUF", _VERSION, len(model.tensors), len(model.metadata)))
    out.write(_metadata_bytes(model))
    offset = 0
    for info in model.tensors.values():
        out.write(_tensor_info(info, offset))
        offset += _padded(4 * int(np.prod(info.shape)), model.alignment)
    for info in model.tensors.values():
        _pad(out, model.alignment)
        for values in _dequantized(model, info):
            out.write(values)
    _pad(out, model.alignment)


def _metadata_bytes(model: GgufFile) -> bytes:
    """All keys and values as they lie in the file, between its header and its first tensor's description."""
    cursor = HeaderCursor(model.source)
    cursor.take(_HEADER.size, "header")
    read_metadata(cursor, len(model.metadata))
    return model.source.read(_HEADER.size, cursor.position - _HEADER.size, "metadata").tobytes()


def _tensor_info(info: TensorInfo, offset: int) -> bytes:
    name, dims = info.name.encode(), info.shape[::-1]
    text = struct.pack("<Q", len(name)) + name
    return text + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, GGMLQuantizationType.F32, offset)


def _dequantized(model: GgufFile, info: TensorInfo) -> Iterator[bytes]:
    step = max(1, CHUNK_BYTES * info.n_rows // max(info.nbytes, 1))
    for start in range(0, info.n_rows, step):
        raw = model.read_raw(info.name, slice(start, min(start + step, info.n_rows)))
        try:
            values = dequantize(raw, GGMLQuantizationType(info.type_id))
        except NotImplementedError:
            where, found = info.name, info.type_name
            raise CheckpointError("cannot be dequantized", file=model.path, where=where, found=found) from None
        yield values.astype("<f4", copy=False).tobytes()


def _padded(size: int, alignment: int) -> int:
    return size + -size % alignment


def _pad(out: BinaryIO, alignment: int) -> None:
    out.write(bytes(-out.tell() % alignment))
