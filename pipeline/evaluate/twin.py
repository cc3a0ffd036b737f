"""The F32 twin of a GGUF: the same model with every tensor dequantized, so that llama.cpp computes in float32.

llama.cpp rounds activations to the blocks of a quantized weight; only against the twin is an engine's error its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from gguf import GGMLQuantizationType, dequantize

from layouts.atomic import write_beside
from pipeline.checkpoint.gguf_file import GgufFile, TensorInfo
from pipeline.checkpoint.gguf_header import HeaderCursor, read_metadata
from pipeline.errors import CheckpointError, MismatchError, MissingFileError
from pipeline.evaluate.control_adapter import Adapter
from pipeline.files import file_sha256

# magic, version, number of tensors, number of keys
_HEADER = struct.Struct("<4sIQQ")
_VERSION = 3
_STRING = 8
CHUNK_BYTES = 1 << 24
TWIN_OF = "engineset.twin_of"
MERGED = "merged"


def write_twin(source: str | Path, twin: str | Path, change: Adapter | None = None) -> Path:
    """Write `twin`, a GGUF with the metadata of `source` and its tensors as F32, unless it is there already.

    Some rows at a time are in memory. The file appears whole or not at all, and holds the SHA-256 of its source under
    `engineset.twin_of`, by which it is known again; one with an adapter merged, `change`, is always written anew.

    Raises
    ------
    MissingFileError : no such source
    MismatchError : `twin` is there and no twin of anything; it is left alone
    CheckpointError : not a sound GGUF, or a tensor of a type that cannot be dequantized
    """
    source, twin = Path(source), Path(twin)
    if not source.is_file():
        raise MissingFileError("no such GGUF", file=source)
    digest = file_sha256(source)
    if twin.exists() and _twin_of(twin, source) == digest and change is None:
        return twin
    model = GgufFile(source)
    if model.big_endian:
        raise CheckpointError("byte order", file=source, expected="little-endian", found="big-endian")
    with write_beside(twin) as file:
        _write(model, digest if change is None else MERGED, file, change)
    return twin


def _twin_of(path: Path, source: Path) -> str:
    """The hash in a file that may be written over. Raises MismatchError for one that may not."""
    found = None if path.samefile(source) else GgufFile(path).metadata.get(TWIN_OF)
    if not isinstance(found, str):
        raise MismatchError("is there and not a twin, name another file", file=path, where=TWIN_OF)
    return found


def _write(model: GgufFile, digest: str, out: BinaryIO, change: Adapter | None) -> None:
    pairs = [raw for key, raw in _metadata(model) if key != TWIN_OF]
    pairs.append(_string(TWIN_OF) + struct.pack("<I", _STRING) + _string(digest))
    out.write(_HEADER.pack(b"GGUF", _VERSION, len(model.tensors), len(pairs)))
    out.write(b"".join(pairs))
    offset = 0
    for info in model.tensors.values():
        out.write(_tensor_info(info, offset))
        offset += _padded(4 * int(np.prod(info.shape)), model.alignment)
    for info in model.tensors.values():
        _pad(out, model.alignment)
        for values in _dequantized(model, info, change):
            out.write(values)
    _pad(out, model.alignment)


def _metadata(model: GgufFile) -> Iterator[tuple[str, bytes]]:
    """Each key, and the bytes of key and value as they lie in the file."""
    cursor = HeaderCursor(model.source)
    cursor.take(_HEADER.size, "header")
    for _ in model.metadata:
        start = cursor.position
        (key,) = read_metadata(cursor, 1)
        yield key, model.source.read(start, cursor.position - start, key).tobytes()


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _tensor_info(info: TensorInfo, offset: int) -> bytes:
    dims = info.shape[::-1]
    return _string(info.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, GGMLQuantizationType.F32, offset)


def _dequantized(model: GgufFile, info: TensorInfo, change: Adapter | None) -> Iterator[bytes]:
    step = max(1, CHUNK_BYTES * info.n_rows // max(info.nbytes, 1))
    for start in range(0, info.n_rows, step):
        raw = model.read_raw(info.name, slice(start, min(start + step, info.n_rows)))
        try:
            values = dequantize(raw, GGMLQuantizationType(info.type_id))
        except NotImplementedError:
            where, found = info.name, info.type_name
            raise CheckpointError("cannot be dequantized", file=model.path, where=where, found=found) from None
        if change is not None:
            values = change(info.name, values, start)
        yield values.astype("<f4", copy=False).tobytes()


def _padded(size: int, alignment: int) -> int:
    return size + -size % alignment


def _pad(out: BinaryIO, alignment: int) -> None:
    out.write(bytes(-out.tell() % alignment))
