"""The AXL4 sidecar (`layout_v4.bin`): the published loader's format, one file offset per element.

It holds neither codec, width, planes, second copies, scale and bias entries nor axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from layouts.algebra import Layout, Piece
from layouts.atomic import write_beside
from layouts.axl4_records import HEADER, MAGIC, MATRICES, MATRIX, NORM, VERSION, Record, read_records
from layouts.codecs import codec as codec_of
from layouts.digits import Digit
from layouts.errors import FitRefused, LayoutError, SidecarError
from layouts.fit import fit
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

NOT_PLACED = (1 << 64) - 1
MAX_BLOB = 1 << 49
ASSUMED_CODEC = "bf16"
_SHORT = {name: short for short, name in MATRICES.items()}
_BLOCK_ELEMENTS = 1 << 17

Codecs = str | Mapping[str, str]


def write_axl4(path: Path, layout: EngineLayout, blob_offset: int, strict: bool = False) -> list[str]:
    """Write the first copy of every tensor of a layout.

    Parameters
    ----------
    blob_offset : byte of the engine file at which the blob starts
    strict : refuse a layout that the format cannot hold completely

    Returns
    -------
    what the file does not hold, `tensor: what`: further copies and planes, entries, axes, codecs other than bf16, tensors
    that have no name there or do not start at a byte; absent elements, which are written as not placed

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
        file.write(HEADER.pack(MAGIC, VERSION, len(matrices), len(norms)))
        for tensor in matrices:
            file.write(MATRIX.pack(_SHORT[tensor.name].encode(), *tensor.shape))
            _write_offsets(file, tensor, blob_offset)
        for tensor in norms:
            file.write(NORM.pack(tensor.name.encode(), tensor.shape[1]))
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
    if first.bias is not None:
        yield f"{tensor.name}: bias entries are not held"
    if first.absent:
        yield f"{tensor.name}: absent elements are not told from ones that are not placed"
    if tensor.dims or tensor.padding:
        yield f"{tensor.name}: axes and padding of the source are not held"
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
        table = plane.addresses(start, min(start + step, tensor.shape[0]), tensor.shape[1])
        absent = table < 0
        table //= 8
        table += blob_offset
        table[absent] = -1
        file.write(table.astype("<u8", copy=False).data)


def read_axl4(
    path: Path,
    blob_offset: int = 0,
    blob_bytes: int | None = None,
    codec: Codecs = ASSUMED_CODEC,
    kind: str | None = None,
    blob: str = "npu_params",
) -> EngineLayout:
    """Read a sidecar back into layouts: the exact inverse of writing one copy of one plane.

    Parameters
    ----------
    blob_offset, blob_bytes : where the blob lies in the engine file; None: it ends with the last element
    codec : what the file does not say: one name for all tensors, or a name for each, `bf16` where there is none
    kind : of the result; None: post for a head, embedding for one alone, else layer
    blob : name of the blob

    Raises
    ------
    SidecarError : another magic or version, counts that do not fill the file, an unknown or repeated name, an
        element that is not placed, outside the blob or in no regular place. Counts are checked before anything is mapped.
    """
    room = (blob_offset, MAX_BLOB if blob_bytes is None else blob_bytes)
    try:
        with path.open("rb") as file:
            records = read_records(file, path.stat().st_size)
        tensors = tuple(_tensor(path, record, room, codec) for record in records)
        size = blob_bytes if blob_bytes is not None else _last_byte(tensors)
        return EngineLayout(kind or _kind(tensors), blob, size, tensors, blob_offset)
    except OSError as error:
        raise SidecarError(f"sidecar cannot be read: {error.strerror}", file=path) from error
    except LayoutError as error:
        found = {"expected": error.expected, "found": error.found}
        raise SidecarError(error.reason, file=path, where=error.where, offset=error.offset, **found) from error


def _last_byte(tensors: tuple[StoredTensor, ...]) -> int:
    return max((layout.extent[1] // 8 for tensor in tensors for layout in tensor.layouts()), default=0)


def _kind(tensors: tuple[StoredTensor, ...]) -> str:
    names = {tensor.name for tensor in tensors}
    if MATRICES["lm_head"] in names:
        return "post"
    return "embedding" if names == {MATRICES["embed"]} else "layer"


def _tensor(path: Path, record: Record, blob: tuple[int, int], codec: Codecs) -> StoredTensor:
    name = codec if isinstance(codec, str) else codec.get(record.name, ASSUMED_CODEC)
    size = codec_of(name).width // 8
    if record.shape[0] * record.shape[1] * size > blob[1]:
        expected, found = f"at most {blob[1] // size} elements", list(record.shape)
        raise SidecarError("more elements than the blob holds", where=record.name, expected=expected, found=found)
    table = np.memmap(path, "<u8", "r", record.offset, record.shape)
    _check_inside(table, record, blob[0], blob[0] + blob[1] - size)
    try:
        pieces = fit(table.view(np.int64), size)
    except FitRefused as error:
        where = f"{record.name}{error.where}"
        raise SidecarError(error.reason, where=where, expected=error.expected, found=error.found) from error
    held = Plane(tuple(_in_bits(piece, blob[0]) for piece in pieces))
    return StoredTensor(record.name, record.shape, name, (Copy("decode", (held,)),))


def _in_bits(piece: Piece, blob_offset: int) -> Piece:
    """What was fitted to bytes of the file, in bits of the blob."""
    layout = piece.layout
    rows, cols = ([Digit(digit.size, 8 * digit.stride) for digit in axis] for axis in (layout.rows, layout.cols))
    base = 8 * (layout.base - blob_offset)
    return Piece(piece.row, piece.col, Layout(layout.shape, base, tuple(rows), tuple(cols), 8 * layout.width))


def _check_inside(table: npt.NDArray[np.uint64], record: Record, first: int, last: int) -> None:
    """Every offset from `first` to `last`, or the first other one named."""
    if first <= int(table.min()) and int(table.max()) <= last:
        return
    index = int(np.argmax((table < first) | (table > last)))
    where = f"{record.name}[{index // record.shape[1]}, {index % record.shape[1]}]"
    found, at = int(table.flat[index]), record.offset + 8 * index
    if found == NOT_PLACED:
        raise SidecarError("element is not placed", where=where, offset=at)
    raise SidecarError("element outside the blob", where=where, offset=at, expected=f"{first} to {last}", found=found)
