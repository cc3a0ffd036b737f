"""Header and records of an AXL4 file: names, shapes, positions; checked to fill the file before anything else is read.

    AXL4  u32 version = 1  u32 matrices  u32 norms
    matrix:  char[8] name   u32 rows  u32 cols  u64 offset[rows * cols]
    norm:    char[32] name  u32 length          u64 offset[length]

Little-endian; offsets are absolute bytes in the engine file, row-major, all ones = not placed.
"""

from __future__ import annotations

import struct
from typing import IO, NamedTuple

from layouts.errors import SidecarError

MAGIC, VERSION = b"AXL4", 1
MAX_RECORDS = 64
MATRICES = {
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
    "lm_head": "lm_head.weight",
    "embed": "model.embed_tokens.weight",
}
"""Published names for a layer's seven; `lm_head` and `embed` are ours."""
HEADER, MATRIX, NORM = struct.Struct("<4s3I"), struct.Struct("<8s2I"), struct.Struct("<32sI")


class Record(NamedTuple):
    """A tensor of the file: engine name, (rows, cols), byte of its first offset."""

    name: str
    shape: tuple[int, int]
    offset: int


def read_records(file: IO[bytes], size: int) -> list[Record]:
    """Every record of a file of `size` bytes.

    Raises SidecarError for another magic or version, counts that do not fill the file, an unknown or repeated name.
    """
    header = file.read(HEADER.size)
    if len(header) < HEADER.size or header[:4] != MAGIC:
        raise SidecarError("not an AXL4 file", offset=0, expected=MAGIC, found=header[:4])
    _, version, matrices, norms = HEADER.unpack(header)
    if version != VERSION:
        raise SidecarError("unknown version", offset=4, expected=VERSION, found=version)
    if matrices + norms > MAX_RECORDS:
        raise SidecarError("too many records", offset=8, expected=f"at most {MAX_RECORDS}", found=matrices + norms)
    records: list[Record] = []
    at = HEADER.size
    for form in [MATRIX] * matrices + [NORM] * norms:
        file.seek(at)
        record = _record(form, file.read(form.size), at)
        if record.name in {known.name for known in records}:
            raise SidecarError("name twice", where=record.name, offset=at)
        at = record.offset + 8 * record.shape[0] * record.shape[1]
        if at > size:
            raise SidecarError("file too short", where=record.name, offset=record.offset, expected=at, found=size)
        records.append(record)
    if at != size:
        raise SidecarError("bytes after the last record", offset=at, expected=at, found=size)
    return records


def _record(form: struct.Struct, data: bytes, at: int) -> Record:
    if len(data) < form.size:
        raise SidecarError("file too short", offset=at, expected=f"{form.size} bytes", found=len(data))
    padded, *dims = form.unpack(data)
    text = padded.rstrip(b"\0").decode("ascii", "backslashreplace")
    if form is MATRIX and text not in MATRICES:
        raise SidecarError("unknown matrix", offset=at, expected=" | ".join(MATRICES), found=text)
    name = MATRICES[text] if form is MATRIX else text
    rows, cols = dims if form is MATRIX else (1, *dims)
    if rows == 0 or cols == 0:
        raise SidecarError("empty tensor", where=name, offset=at, found=[rows, cols])
    return Record(name, (rows, cols), at + form.size)
