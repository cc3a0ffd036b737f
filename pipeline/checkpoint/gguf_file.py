"""One GGUF file: header checked as it is parsed, tensors read by row range."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.checkpoint.ggml_types import GGML_TYPES, Bytes, GgmlType
from pipeline.checkpoint.gguf_header import HeaderCursor, read_metadata
from pipeline.checkpoint.looks_like import looks_like
from pipeline.checkpoint.source_file import CheckpointWarning, SourceFile
from pipeline.checkpoint.stored import row_range
from pipeline.errors import CheckpointError

VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
# least bytes of a key (length, character, type, u8) and of a tensor (length, character, n_dims, dim, type, offset)
_LEAST_KEY, _LEAST_TENSOR = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the file: `shape` is rows first, `offset` absolute, both checked against the file."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    nbytes: int

    @property
    def type_id(self) -> int:
        return self.type.id

    @property
    def type_name(self) -> str:
        return self.type.name

    @property
    def n_rows(self) -> int:
        """Units that `read_raw` counts: the first axis, or 1 for a vector."""
        return self.shape[0] if len(self.shape) > 1 else 1


class GgufFile:
    """A GGUF, version 2 or 3, of either byte order. Opening reads the header and nothing of the tensors.

    Attributes
    ----------
    version : 2 or 3
    metadata : key -> number, bool, string or lazy sequence
    tensors : name -> TensorInfo, in the order of the file
    alignment : of tensor data, bytes
    big_endian : byte order of the file

    Raises
    ------
    CheckpointError, MissingFileError : anything that is not a sound GGUF; file, tensor or key, offset and both sides
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.source = SourceFile(self.path)
        cursor = HeaderCursor(self.source)
        self.version = _read_version(cursor)
        self.big_endian = cursor.order == ">"
        tensor_count = _read_count(cursor, "tensor_count", _LEAST_TENSOR, MAX_TENSORS)
        self.metadata: Mapping[str, Any] = read_metadata(cursor, _read_count(cursor, "kv_count", _LEAST_KEY, MAX_KEYS))
        self.alignment = self._read_alignment()
        parsed = list(_read_infos(cursor, tensor_count))
        data_start = -(-cursor.position // self.alignment) * self.alignment
        self.tensors: Mapping[str, TensorInfo] = self._placed(parsed, data_start)
        self._check_placement(data_start)

    def read_raw(self, name: str, rows: slice | None = None) -> Bytes:
        """Bytes of a tensor, or of rows of its first axis, as uint8 `[rows, bytes per row]`, in the file's byte order.

        A vector is one row. Raises CheckpointError for an unknown name or a file that changed or ends early.
        """
        info = self.tensors.get(name)
        if info is None:
            raise CheckpointError("no such tensor", file=self.path, where=name)
        start, stop = row_range(rows, info.n_rows)
        row_bytes = info.nbytes // info.n_rows
        raw = self.source.read(info.offset + start * row_bytes, (stop - start) * row_bytes, name)
        return raw.reshape(stop - start, row_bytes)

    def _read_alignment(self) -> int:
        value = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(value) is not int or not 0 < value <= _MAX_ALIGNMENT or value & (value - 1):
            raise CheckpointError(
                "impossible alignment",
                file=self.path,
                where="general.alignment",
                expected=f"a power of two up to {_MAX_ALIGNMENT}",
                found=value,
            )
        return value

    def _placed(self, parsed: list[TensorInfo], data_start: int) -> dict[str, TensorInfo]:
        placed: dict[str, TensorInfo] = {}
        for info in parsed:
            if info.name in placed:
                raise CheckpointError("duplicate tensor", file=self.path, where=info.name)
            if self.big_endian and not info.type.big_endian:
                raise CheckpointError(f"big-endian {info.type_name} is not supported", file=self.path, where=info.name)
            offset = data_start + info.offset
            if info.nbytes > self.source.size - offset:
                reason = "tensor data ends past the end of the file"
                raise CheckpointError(
                    reason,
                    file=self.path,
                    where=info.name,
                    offset=offset,
                    expected=f"{offset + info.nbytes} bytes",
                    found=self.source.size,
                )
            placed[info.name] = TensorInfo(info.name, info.shape, info.type, offset, info.nbytes)
        return placed

    def _check_placement(self, data_start: int) -> None:
        """Refuses overlaps; warns of odd offsets and of bytes after the last tensor."""
        end = data_start
        for info in sorted(self.tensors.values(), key=lambda info: info.offset):
            if info.offset < end:
                raise CheckpointError(
                    "overlaps another tensor",
                    file=self.path,
                    where=info.name,
                    offset=info.offset,
                    expected=f">= {end}",
                    found=info.offset,
                )
            end = info.offset + info.nbytes
        odd = [info for info in self.tensors.values() if info.offset % self.alignment]
        if odd:
            self._warn(
                f"{odd[0].name}: byte {odd[0].offset}: not aligned to {self.alignment} ({len(odd)} such tensors)"
            )
        junk = self.source.size - -(-end // self.alignment) * self.alignment
        if junk > 0:
            self._warn(f"byte {end}: {junk} bytes after the last tensor are ignored")

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self.path}: {text}", CheckpointWarning, stacklevel=4)


def _read_version(cursor: HeaderCursor) -> int:
    """Reads magic and version and sets the cursor's byte order: the version's other 16 bits are zero."""
    start = cursor.source.read(0, min(64, cursor.source.size)).tobytes()
    if start[:4] != b"GGUF":
        raise cursor.fault("not a GGUF", "magic", "GGUF", looks_like(start))
    cursor.skip(4, "magic")
    version = int(cursor.number("I", "version"))
    if version and version & 0xFFFF == 0:
        cursor.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in VERSIONS:
        raise cursor.fault("unsupported GGUF version", "version", "2 or 3", version)
    return version


def _read_count(cursor: HeaderCursor, where: str, least_bytes: int, most: int) -> int:
    count = int(cursor.number("Q", where))
    most = min(most, cursor.remaining // least_bytes)
    if count > most:
        raise cursor.fault("more than the file can hold", where, f"<= {most}", count)
    return count


def _read_infos(cursor: HeaderCursor, count: int) -> Iterator[TensorInfo]:
    """Tensor infos whose `offset` is still relative to the start of the data."""
    for index in range(count):
        name = cursor.name(f"tensor {index}")
        n_dims = cursor.number("I", name)
        if not 1 <= n_dims <= MAX_DIMS:
            raise cursor.fault("impossible number of dimensions", name, f"1 to {MAX_DIMS}", n_dims)
        dims = tuple(cursor.number("Q", name) for _ in range(n_dims))
        type_id, offset = cursor.number("I", name), cursor.number("Q", name)
        kind = GGML_TYPES.get(type_id)
        if kind is None:
            raise cursor.fault("unknown tensor type", name, f"one of {_known_types()}", type_id)
        if 0 in dims or math.prod(dims) >= 1 << 63:
            raise cursor.fault("impossible dimensions", name, "a product from 1 to 2^63", list(dims))
        if dims[0] % kind.block:
            raise cursor.fault(f"row is not whole {kind.name} blocks", name, f"a multiple of {kind.block}", dims[0])
        yield TensorInfo(name, dims[::-1], kind, offset, math.prod(dims) // kind.block * kind.nbytes)


def _known_types() -> str:
    return " ".join(str(type_id) for type_id in sorted(GGML_TYPES))
