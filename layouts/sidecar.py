"""`*.layout.toml`: an EngineLayout as a few kilobytes of text, complete, deterministic and diffable."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tomli_w

from layouts.algebra import parse_piece
from layouts.atomic import write_beside
from layouts.bias import Bias
from layouts.copies import parse_rect
from layouts.errors import SidecarError
from layouts.fields import Kinds, Table, integers, naming, parsed, take
from layouts.scales import Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

FORMAT = 3
MAX_BYTES = 1 << 20
_WITH_FACTOR = ("fp32", "affine")
_FACTORS: Kinds = {"factor": float, "zero": float}


def dump_layout(layout: EngineLayout) -> str:
    """The text of a layout; equal layouts give equal text."""
    return tomli_w.dumps(
        {
            "format": FORMAT,
            "kind": layout.kind,
            "blob": layout.blob,
            "blob_bytes": layout.blob_bytes,
            "blob_offset": layout.blob_offset,
            **({"outside": layout.outside} if layout.outside else {}),
            "tensor": [_tensor_table(tensor) for tensor in layout.tensors],
        },
        multiline_strings=False,
    )


def load_layout(text: str, file: str | Path | None = None) -> EngineLayout:
    """Exact inverse of `dump_layout`.

    Parameters
    ----------
    file : named in errors

    Raises
    ------
    SidecarError : not TOML, an unknown or a missing key, another type, values that contradict each other; names the
        field. A text of more than 1 MiB is refused unread.
    """
    try:
        return _engine(_parse(text))
    except SidecarError as error:
        error.file = file
        raise


def write_layout(path: Path, layout: EngineLayout) -> None:
    """Write the sidecar; the file appears whole or not at all."""
    with write_beside(path) as file:
        file.write(dump_layout(layout).encode())


def read_layout(path: Path) -> EngineLayout:
    """Read a sidecar. Raises SidecarError, also for a file that is absent, too large or no UTF-8."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SidecarError(f"sidecar cannot be read: {error}", file=path) from error
    return load_layout(text, path)


def _tensor_table(tensor: StoredTensor) -> Table:
    table: Table = {"name": tensor.name, "shape": list(tensor.shape), "codec": tensor.codec}
    if tensor.dims:
        table |= {"dims": list(tensor.dims), "order": list(tensor.order)}
    if tensor.padding:
        table["padding"] = tensor.padding
    if tensor.columns:
        table |= {"source": tensor.source, "columns": list(tensor.columns)}
    if tensor.folded:
        table["folded"] = tensor.folded
    if tensor.scales is not None:
        table["scales"] = _scales_table(tensor.scales)
    if tensor.bias is not None:
        table["bias"] = _bias_table(tensor.bias)
    return table | {"copy": [_copy_table(copy) for copy in tensor.copies]}


def _bias_table(bias: Bias) -> Table:
    return asdict(bias) | {"factor": bias.factor if bias.entry == "affine" else _shortest(bias.factor)}


def _scales_table(scales: Scales) -> Table:
    table = asdict(scales) | {"factor": scales.factor, "zero": scales.zero if scales.affine else _shortest(scales.zero)}
    return {key: value for key, value in table.items() if scales.entry in _WITH_FACTOR or key not in _FACTORS}


def _shortest(number: float) -> float:
    """The number of fewest digits that is rounded to this float32."""
    return float(str(np.float32(number)))


def _copy_table(copy: Copy) -> Table:
    table: Table = {"name": copy.name}
    if copy.absent:
        table["absent"] = [str(rect) for rect in copy.absent]
    for key, beside in (("entries", copy.entries), ("bias", copy.bias)):
        if beside is not None:
            table[key] = [str(piece) for piece in beside.pieces]
    return table | {"plane": [_plane_table(plane) for plane in copy.planes]}


def _plane_table(plane: Plane) -> Table:
    return {
        "low_bit": plane.low_bit,
        "bits": plane.bits,
        "bias": plane.bias,
        "pieces": [str(piece) for piece in plane.pieces],
    }


def _parse(text: str) -> Table:
    if len(text) > MAX_BYTES:
        raise SidecarError("sidecar too large", expected=f"at most {MAX_BYTES} bytes", found=f"more than {MAX_BYTES}")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise SidecarError(f"not TOML: {error}") from error


def _engine(table: Table) -> EngineLayout:
    (version,) = take({key: value for key, value in table.items() if key == "format"}, "", format=int)
    if version != FORMAT:
        raise SidecarError("unknown version", where="format", expected=FORMAT, found=version)
    _, kind, blob, blob_bytes, blob_offset, tensors, outside = take(
        table, "", {"outside": str}, format=int, kind=str, blob=str, blob_bytes=int, blob_offset=int, tensor=list
    )
    if outside == "":
        raise SidecarError("not a SHA-256", where="outside", found="''")
    read = tuple(_tensor(item, f"tensor[{i}]") for i, item in enumerate(tensors))
    with naming("layout"):
        return EngineLayout(kind, blob, blob_bytes, read, blob_offset, outside or "")


def _tensor(table: Table, where: str) -> StoredTensor:
    optional: Kinds = {"scales": dict, "folded": str, "bias": dict, "dims": list, "order": list, "padding": int}
    optional |= {"source": str, "columns": list}
    name, shape, codec, copies, scales, folded, bias, dims, order, padding, source, columns = take(
        table, where, optional, name=str, shape=list, codec=str, copy=list
    )
    if len(shape) != 2 or not all(type(n) is int for n in shape):
        raise SidecarError("not a shape", where=f"{where}.shape", expected="[rows, cols]", found=shape)
    if folded == "":
        raise SidecarError("not a name", where=f"{where}.folded", found="''")
    if padding == 0:
        raise SidecarError("no padding", where=f"{where}.padding", expected="1 or more", found=0)
    if dims == []:
        raise SidecarError("not a shape", where=f"{where}.dims", found="[]")
    given = (("dims", dims), ("order", order), ("columns", columns))
    axes = [integers(values or [], f"{where}.{key}") for key, values in given]
    rule = None if scales is None else _scales(scales, f"{where}.scales")
    beside = None if bias is None else _bias(bias, f"{where}.bias")
    read = tuple(_copy(item, f"{where}.copy[{i}]") for i, item in enumerate(copies))
    with naming(where):
        beyond = (padding or 0, source or "", axes[2])
        matrix = (shape[0], shape[1])
        return StoredTensor(name, matrix, codec, read, rule, folded or "", beside, axes[0], axes[1], *beyond)


def _scales(table: Table, where: str) -> Scales:
    more = _FACTORS if isinstance(table, dict) and table.get("entry") in _WITH_FACTOR else {}
    values = take(table, where, {}, entry=str, group=int, divisor=float, shared=bool, **more)
    with naming(where):
        return Scales(*values)


def _bias(table: Table, where: str) -> Bias:
    tensor, entry, factor, zero_point = take(table, where, tensor=str, entry=str, factor=float, zero_point=int)
    with naming(where):
        return Bias(tensor, entry, factor, zero_point)


def _copy(table: Table, where: str) -> Copy:
    optional: Kinds = {"entries": list, "bias": list, "absent": list}
    name, planes, entries, bias, absent = take(table, where, optional, name=str, plane=list)
    read = tuple(_plane(item, f"{where}.plane[{i}]") for i, item in enumerate(planes))
    beside = [
        None if texts is None else parsed(texts, f"{where}.{key}", parse_piece)
        for key, texts in (("entries", entries), ("bias", bias))
    ]
    rects = parsed(absent or [], f"{where}.absent", parse_rect)
    with naming(where):
        places = [None if pieces is None else Plane(pieces) for pieces in beside]
        return Copy(name, read, places[0], places[1], rects)


def _plane(table: Table, where: str) -> Plane:
    low_bit, bits, bias, pieces = take(table, where, low_bit=int, bits=int, bias=int, pieces=list)
    read = parsed(pieces, f"{where}.pieces", parse_piece)
    with naming(where):
        return Plane(read, low_bit, bits, bias)
