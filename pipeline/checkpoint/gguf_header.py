"""The header of a GGUF, read forward in blocks; every count is checked against the bytes that remain.

Format: the GGUF specification of the ggml project, versions 2 and 3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import numpy as np

from pipeline.checkpoint.source_file import SourceFile
from pipeline.errors import CheckpointError

BLOCK_BYTES = 1 << 20
MAX_NAME = 1 << 16
MAX_STRING = 16 << 20
MAX_STRINGS = 1 << 22

ByteOrder = Literal["<", ">"]

_STRING, _ARRAY = 8, 9
# value type id -> struct and numpy code
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class HeaderCursor:
    """A position in the header that only moves forward."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.order: ByteOrder = "<"
        self.position = self.strings = 0
        self._block, self._start = b"", 0

    @property
    def remaining(self) -> int:
        return self.source.size - self.position

    def fault(self, reason: str, where: str, expected: object = None, found: object = None) -> CheckpointError:
        return CheckpointError(
            reason, file=self.source.path, where=where, offset=self.position, expected=expected, found=found
        )

    def need(self, count: int, where: str) -> None:
        """Refuses when fewer than `count` bytes remain."""
        if count > self.remaining:
            raise self.fault("file ends inside the header", where, f"{count} more bytes", self.remaining)

    def take(self, count: int, where: str) -> bytes:
        self.need(count, where)
        begin = self.position - self._start
        if begin + count > len(self._block):
            size = min(max(count, BLOCK_BYTES), self.remaining)
            self._block, self._start, begin = self.source.read(self.position, size).tobytes(), self.position, 0
        self.position += count
        return self._block[begin : begin + count]

    def number(self, code: str, where: str) -> Any:
        return struct.unpack(self.order + code, self.take(struct.calcsize("=" + code), where))[0]

    def raw_string(self, limit: int, where: str) -> bytes:
        length = self.number("Q", where)
        if length > min(limit, self.remaining):
            raise self.fault("impossible string length", where, f"<= {min(limit, self.remaining)}", length)
        return self.take(length, where)

    def name(self, where: str) -> str:
        """A key or tensor name: not empty, valid UTF-8."""
        raw = self.raw_string(MAX_NAME, where)
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fault("name is not UTF-8", where, found=raw[:40]) from error
        if not text:
            raise self.fault("empty name", where)
        return text

    def skip(self, count: int, where: str) -> None:
        self.need(count, where)
        self.position += count

    def skip_strings(self, count: int, where: str) -> None:
        """Moves past `count` strings, each a u64 length and its bytes."""
        self.strings += count
        if self.strings > MAX_STRINGS:
            raise self.fault("too many strings in all", where, f"<= {MAX_STRINGS}", self.strings)
        length_of = struct.Struct(self.order + "Q").unpack_from
        block, at = b"", 0
        for index in range(count):
            if at + 8 > len(block):
                self.skip(at, where)
                self.need(8, where)
                block, at = self.source.read(self.position, min(BLOCK_BYTES, self.remaining)).tobytes(), 0
            at += 8 + length_of(block, at)[0]
            if at > self.remaining:
                raise self.fault("file ends inside a string", f"{where}[{index}]", f"{at} more bytes", self.remaining)
        self.skip(at, where)


class MetadataArray(Sequence[Any]):
    """An array of the metadata, decoded when it is first looked at.

    Parameters
    ----------
    source : the file
    span : first byte and number of bytes of the elements
    count : number of elements
    type_id : the elements' value type
    """

    def __init__(self, source: SourceFile, span: tuple[int, int], count: int, type_id: int, order: ByteOrder) -> None:
        self._source, self._span, self._count = source, span, count
        self._type_id, self._order = type_id, order
        self._values: list[Any] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._decoded()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._decoded())

    def _decoded(self) -> list[Any]:
        if self._values is None:
            raw = self._source.read(*self._span)
            if self._type_id == _STRING:
                self._values = _decode_strings(raw.tobytes(), self._count, self._order)
            else:
                self._values = raw.view(np.dtype(_NUMBERS[self._type_id]).newbyteorder(self._order)).tolist()
        return self._values


def _decode_strings(data: bytes, count: int, order: str) -> list[str]:
    length_of = struct.Struct(order + "Q").unpack_from
    values, at = [], 0
    for _ in range(count):
        end = at + 8 + length_of(data, at)[0]
        values.append(data[at + 8 : end].decode("utf-8", "replace"))
        at = end
    return values


def read_metadata(cursor: HeaderCursor, count: int) -> dict[str, Any]:
    """`count` pairs of key and value. Numbers, bools and strings come decoded, arrays as `MetadataArray`."""
    metadata: dict[str, Any] = {}
    for index in range(count):
        key = cursor.name(f"key {index}")
        if key in metadata:
            raise cursor.fault("duplicate key", key)
        metadata[key] = _read_value(cursor, key)
    return metadata


def _read_value(cursor: HeaderCursor, key: str) -> Any:
    type_id = cursor.number("I", key)
    if type_id == _STRING:
        return cursor.raw_string(MAX_STRING, key).decode("utf-8", "replace")
    if type_id == _ARRAY:
        return _read_array(cursor, key)
    if type_id not in _NUMBERS:
        raise cursor.fault("unknown value type", key, "0 to 12", type_id)
    return cursor.number(_NUMBERS[type_id], key)


def _read_array(cursor: HeaderCursor, key: str) -> MetadataArray:
    type_id, count = cursor.number("I", key), cursor.number("Q", key)
    if type_id not in _NUMBERS and type_id != _STRING:
        raise cursor.fault("unknown array type", key, "numbers or strings", type_id)
    start = cursor.position
    least = 8 if type_id == _STRING else struct.calcsize("=" + _NUMBERS[type_id])
    if count > cursor.remaining // least:
        raise cursor.fault("impossible array length", key, f"<= {cursor.remaining // least}", count)
    if type_id == _STRING:
        cursor.skip_strings(count, key)
    else:
        cursor.skip(count * least, key)
    return MetadataArray(cursor.source, (start, cursor.position - start), count, type_id, cursor.order)
