"""Protobuf wire format, read in place: every field with the byte range of its payload, nothing copied.

Parsing is validating: an over-long varint, a length beyond its parent or a group is refused with its offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.container.mapped import Buffer
from pipeline.errors import AxmodelError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MAX_VARINT_BYTES = 10
# real messages have thousands; a megabyte of empty fields would be read for seconds
MOST_FIELDS = 1 << 17


class Field(NamedTuple):
    """One field. `value` is the integer of a varint or fixed field, the payload's length otherwise; `start:stop` its payload."""

    number: int
    kind: int
    value: int
    start: int
    stop: int


def read_varint(data: Buffer, at: int, stop: int, where: str) -> tuple[int, int]:
    """The varint at `at` and the offset behind it; at most 10 bytes and 64 bits."""
    value = 0
    for index in range(MAX_VARINT_BYTES):
        if at + index >= stop:
            raise AxmodelError("varint runs past the end of its message", where=where, offset=at)
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                raise AxmodelError("varint holds more than 64 bits", where=where, offset=at)
            return value, at + index + 1
    raise AxmodelError("varint is longer than 10 bytes", where=where, offset=at)


def fields(data: Buffer, start: int, stop: int, where: str) -> Iterator[Field]:
    """The fields of the message at `start:stop`, in file order."""
    at, count = start, 0
    while at < stop:
        count += 1
        if count > MOST_FIELDS:
            raise AxmodelError("a message of too many fields", where=where, offset=at, expected=MOST_FIELDS)
        tag, payload = read_varint(data, at, stop, where)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number < 1 << 29:
            raise AxmodelError("no such field number", where=where, offset=at, found=number)
        if kind == VARINT:
            value, end = read_varint(data, payload, stop, where)
            yield Field(number, kind, value, payload, end)
        elif kind in (FIXED32, FIXED64, LENGTH):
            length = {FIXED32: 4, FIXED64: 8}.get(kind, -1)
            if kind == LENGTH:
                length, payload = read_varint(data, payload, stop, where)
            if length > stop - payload:
                reason = f"field {number} runs past the end of its message"
                raise AxmodelError(
                    reason, where=where, offset=at, expected=f"at most {stop - payload} bytes", found=length
                )
            end = payload + length
            value = length if kind == LENGTH else int.from_bytes(data[payload:end], "little")
            yield Field(number, kind, value, payload, end)
        else:
            raise AxmodelError(f"field {number} has the unknown wire type {kind}", where=where, offset=at)
        at = end


def text(data: Buffer, field: Field, where: str) -> str:
    """A length-delimited field as UTF-8."""
    if field.kind != LENGTH:
        raise AxmodelError(f"field {field.number} is not a string", where=where, offset=field.start)
    try:
        return bytes(data[field.start : field.stop]).decode()
    except UnicodeDecodeError as error:
        raise AxmodelError(
            f"field {field.number} is not UTF-8", where=where, offset=field.start + error.start
        ) from None
