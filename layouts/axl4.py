"""The AXL4 sidecar (`layout_v4.bin`): the published loader's format, one file offset per element.

    AXL4  u32 version = 1  u32 matrices  u32 norms
    matrix:  char[8] name   u32 rows  u32 cols  u64 offset[rows * cols]
    norm:    char[32] name  u32 length          u64 offset[length]

Little-endian; offsets are absolute bytes in the engine file, row-major, all ones = not placed. It holds neither
codec, width, planes nor second copies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from layouts.atomic import write_beside
from layouts.codecs import codec as codec_of
from layouts.errors import FitRefused, LayoutError, SidecarError
from layouts.fit import fit
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

MAGIC, VERSION = b"AXL4", 1
NOT_PLACED = (1 << 64) - 1
MAX_RECORDS = 64
ASSUMED_CODEC = "bf16"
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
_SHORT = {name: short for short, name in MATRICES.items()}
_MATRIX, _NORM = struct.Struct("<8s2I"), struct.Struct("<32sI")
_BLOCK_ELEMENTS = 1 << 17

Codecs = str | Mapping[str, str]


class Record(NamedTuple):
    """A tensor of the file: engine name, (rows, cols), byte of its first offset."""

    name: str
    shape: tuple[int, int]
    offset: int


def write_axl4(path: Path, layout: EngineLayout, blob_offset: int, strict: bool = False) -> list[str]:
    """Write the first copy of every tensor of a layout.

    Parameters
    ----------
    blob_offset : byte of the engine file at which the blob starts
    strict : refuse a layout that the format cannot hold completely

    Returns
    -------
    what the file does not hold, one line each: further copies and planes, codecs other than bf16, tensors that have
    no name there or do not start at a byte

    Raises
    ------
    SidecarError : anything of that kind with `strict`; no file is left then.
    """
    notes = [note for tensor in layout.tensors for note in _losses(tensor)]
    if notes and strict:
        raise SidecarError(f"AXL4 cannot hold the layout: {'; '.join(notes)}", file=path)
    held = [tensor for tensor in layout.tensors if _holdable(tensor)]
    order = list(_SHORT)
    matrices = sorted((t for t in held if t.name in _SHORT), key=lambda t: order.index(t.name))
    norms = [tensor for tensor in held if tensor.name not in _SHORT]
    with write_beside(path) as file:
        file.write(MAGIC + struct.pack("<3I", VERSION, len(matrices), len(norms)))
        for tensor in matrices:
            file.write(_MATRIX.pack(_SHORT[tensor.name].encode(), *tensor.shape))
            _write_offsets(file, tensor, blob_offset)
        for tensor in norms:
            file.write(_NORM.pack(tensor.name.encode(), tensor.shape[1]))
            _write_offsets(file, tensor, blob_offset)
    return notes


def _losses(tensor: StoredTensor) -> Iterator[str]:
    first, *others = tensor.copies
    for copy in others:
        rows = " and ".join(f"{start} to {stop}" for start, stop in copy.rows)
        yield f"{tensor.name}: copy {copy.name} of rows {rows} is not held"
    for plane in first.planes[1:]:
        yield f"{tensor.name}: plane of bits {plane.low_bit} to {plane.low_bit + plane.bits} is not held"
    if first.entries is not None:
        yield f"{tensor.name}: scale entries are not held"
    if tensor.codec != ASSUMED_CODEC:
        yield f"{tensor.name}: codec {tensor.codec} is not recorded, {ASSUMED_CODEC} is assumed"
    if not _named(tensor):
        yield f"{tensor.name}: no name for it, the tensor is not held"
    elif not _byte_aligned(tensor):
        yield f"{tensor.name}: elements are no whole bytes, the tensor is not held"


def _named(tensor: StoredTensor) -> bool:
    return tensor.name in _SHORT or (tensor.shape[0] == 1 and len(tensor.name) <= 32)


def _byte_aligned(tensor: StoredTensor) -> bool:
    plane = tensor.copies[0].planes[0]
    layouts = [piece.layout for piece in plane.pieces]
    bits = [b for each in layouts for b in (each.base, *(d.stride for d in (*each.rows, *each.cols)))]
    return all(b % 8 == 0 for b in (plane.width, *bits))


def _holdable(tensor: StoredTensor) -> bool:
    return _named(tensor) and _byte_aligned(tensor)


def _write_offsets(file: IO[bytes], tensor: StoredTensor, blob_offset: int) -> None:
    plane = tensor.copies[0].planes[0]
    step = max(1, _BLOCK_ELEMENTS // tensor.shape[1])
    for start in range(0, tensor.shape[0], step):
        table = plane.addresses(start, min(start + step, tensor.shape[0]))
        table //= 8
        table += blob_offset
        file.write(table.astype("<u8", copy=False).data)


def read_axl4(
    path: Path,
    blob_offset: int,
    blob_bytes: int,
    codec: Codecs = ASSUMED_CODEC,
    kind: str = "layer",
    blob: str = "npu_params",
) -> EngineLayout:
    """Read a sidecar back into layouts: the exact inverse of writing one copy of one plane.

    Parameters
    ----------
    blob_offset, blob_bytes : where the blob lies in the engine file
    codec : what the file does not say: one name for all tensors, or a name for each, `bf16` where there is none
    kind, blob : of the result

    Raises
    ------
    SidecarError : another magic or version, counts that do not fill the file, an unknown or repeated name, an
        element that is not placed, outside the blob or in no regular place.
    """
    try:
        with path.open("rb") as file:
            records = _records(file, path.stat().st_size)
            tensors = tuple(_tensor(file, record, (blob_offset, blob_bytes), codec) for record in records)
        return EngineLayout(kind, blob, blob_bytes, tensors)
    except OSError as error:
        raise SidecarError(f"sidecar cannot be read: {error.strerror}", file=path) from error
    except LayoutError as error:
        found = {"expected": error.expected, "found": error.found}
        raise SidecarError(error.reason, file=path, where=error.where, offset=error.offset, **found) from error


def _records(file: IO[bytes], size: int) -> list[Record]:
    """Name, shape and position of every record, checked to fill the file exactly before anything is read."""
    header = file.read(16)
    if len(header) < 16 or header[:4] != MAGIC:
        raise SidecarError("not an AXL4 file", offset=0, expected=MAGIC, found=header[:4])
    version, matrices, norms = struct.unpack("<3I", header[4:])
    if version != VERSION:
        raise SidecarError("unknown version", offset=4, expected=VERSION, found=version)
    if matrices + norms > MAX_RECORDS:
        raise SidecarError("too many records", offset=8, expected=f"at most {MAX_RECORDS}", found=matrices + norms)
    records: list[Record] = []
    at = 16
    for form in [_MATRIX] * matrices + [_NORM] * norms:
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
    if form is _MATRIX and text not in MATRICES:
        raise SidecarError("unknown matrix", offset=at, expected=" | ".join(MATRICES), found=text)
    name = MATRICES[text] if form is _MATRIX else text
    rows, cols = dims if form is _MATRIX else (1, *dims)
    if rows == 0 or cols == 0:
        raise SidecarError("empty tensor", where=name, offset=at, found=[rows, cols])
    return Record(name, (rows, cols), at + form.size)


def _tensor(file: IO[bytes], record: Record, blob: tuple[int, int], codec: Codecs) -> StoredTensor:
    name = codec if isinstance(codec, str) else codec.get(record.name, ASSUMED_CODEC)
    width = codec_of(name).width
    count = record.shape[0] * record.shape[1]
    file.seek(record.offset)
    table = np.fromfile(file, "<u8", count)
    _check_inside(table, record, blob[0], blob[0] + blob[1] - width // 8)
    addresses = table.view(np.int64).reshape(record.shape)
    addresses -= blob[0]
    addresses *= 8
    try:
        pieces = fit(addresses, width)
    except FitRefused as error:
        where = f"{record.name}{error.where}"
        raise SidecarError(error.reason, where=where, expected=error.expected, found=error.found) from error
    return StoredTensor(record.name, record.shape, name, (Copy("decode", (Plane(pieces),)),))


def _check_inside(table: npt.NDArray[np.uint64], record: Record, first: int, last: int) -> None:
    """Every offset from `first` to `last`, or the first other one named."""
    if first <= int(table.min()) and int(table.max()) <= last:
        return
    index = int(np.argmax((table < first) | (table > last)))
    where = f"{record.name}[{index // record.shape[1]}, {index % record.shape[1]}]"
    found, at = int(table[index]), record.offset + 8 * index
    if found == NOT_PLACED:
        raise SidecarError("element is not placed", where=where, offset=at)
    raise SidecarError("element outside the blob", where=where, offset=at, expected=f"{first} to {last}", found=found)
