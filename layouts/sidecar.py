"""`*.layout.toml`: an EngineLayout as a few kilobytes of text, complete, deterministic and diffable."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w

from layouts.algebra import Piece, parse_piece
from layouts.atomic import write_beside
from layouts.errors import LayoutError, SidecarError
from layouts.scales import Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor

FORMAT = 2
MAX_BYTES = 1 << 20

Table = dict[str, Any]
Kinds = dict[str, type]


def dump_layout(layout: EngineLayout) -> str:
    """The text of a layout; equal layouts give equal text."""
    return tomli_w.dumps(
        {
            "format": FORMAT,
            "kind": layout.kind,
            "blob": layout.blob,
            "blob_bytes": layout.blob_bytes,
            "blob_offset": layout.blob_offset,
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
    if tensor.folded:
        table["folded"] = tensor.folded
    if tensor.scales is not None:
        table["scales"] = asdict(tensor.scales)
    return table | {"copy": [_copy_table(copy) for copy in tensor.copies]}


def _copy_table(copy: Copy) -> Table:
    entries = {} if copy.entries is None else {"entries": [str(piece) for piece in copy.entries.pieces]}
    return {"name": copy.name, **entries, "plane": [_plane_table(plane) for plane in copy.planes]}


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
    (version,) = _take({key: value for key, value in table.items() if key == "format"}, "", format=int)
    if version != FORMAT:
        raise SidecarError("unknown version", where="format", expected=FORMAT, found=version)
    _, kind, blob, blob_bytes, blob_offset, tensors = _take(
        table, "", format=int, kind=str, blob=str, blob_bytes=int, blob_offset=int, tensor=list
    )
    read = tuple(_tensor(item, f"tensor[{i}]") for i, item in enumerate(tensors))
    with _naming("layout"):
        return EngineLayout(kind, blob, blob_bytes, read, blob_offset)


def _tensor(table: Table, where: str) -> StoredTensor:
    name, shape, codec, copies, scales, folded = _take(
        table, where, {"scales": dict, "folded": str}, name=str, shape=list, codec=str, copy=list
    )
    if len(shape) != 2 or not all(type(n) is int for n in shape):
        raise SidecarError("not a shape", where=f"{where}.shape", expected="[rows, cols]", found=shape)
    if folded == "":
        raise SidecarError("not a name", where=f"{where}.folded", found="''")
    rule = None if scales is None else _scales(scales, f"{where}.scales")
    read = tuple(_copy(item, f"{where}.copy[{i}]") for i, item in enumerate(copies))
    with _naming(where):
        return StoredTensor(name, (shape[0], shape[1]), codec, read, rule, folded or "")


def _scales(table: Table, where: str) -> Scales:
    entry, group, divisor, shared = _take(table, where, entry=str, group=int, divisor=float, shared=bool)
    with _naming(where):
        return Scales(entry, group, divisor, shared)


def _copy(table: Table, where: str) -> Copy:
    name, planes, entries = _take(table, where, {"entries": list}, name=str, plane=list)
    read = tuple(_plane(item, f"{where}.plane[{i}]") for i, item in enumerate(planes))
    pieces = None if entries is None else _pieces(entries, f"{where}.entries")
    with _naming(where):
        return Copy(name, read, None if pieces is None else Plane(pieces))


def _plane(table: Table, where: str) -> Plane:
    low_bit, bits, bias, pieces = _take(table, where, low_bit=int, bits=int, bias=int, pieces=list)
    read = _pieces(pieces, f"{where}.pieces")
    with _naming(where):
        return Plane(read, low_bit, bits, bias)


def _pieces(texts: list[object], where: str) -> tuple[Piece, ...]:
    return tuple(_piece(text, f"{where}[{i}]") for i, text in enumerate(texts))


def _piece(text: object, where: str) -> Piece:
    if not isinstance(text, str):
        raise SidecarError("wrong type", where=where, expected="str", found=type(text).__name__)
    with _naming(where):
        return parse_piece(text)


def _take(table: Table, where: str, optional: Kinds | None = None, **kinds: type) -> list[Any]:
    """The values of exactly the named keys, each of exactly the named type; None for an optional one not there."""
    if not isinstance(table, dict):
        raise SidecarError("wrong type", where=where, expected="table", found=type(table).__name__)
    prefix, known = f"{where}." if where else "", kinds | (optional or {})
    for key in table.keys() - known.keys():
        raise SidecarError("unknown key", where=f"{prefix}{key}", expected=" | ".join(known))
    for key, kind in known.items():
        if key not in table and key in kinds:
            raise SidecarError("missing key", where=f"{prefix}{key}")
        if key in table and type(table[key]) is not kind:
            found = type(table[key]).__name__
            raise SidecarError("wrong type", where=f"{prefix}{key}", expected=kind.__name__, found=found)
    return [table.get(key) for key in known]


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Turn what a layout object refuses into an error of the field it was read from."""
    try:
        yield
    except LayoutError as error:
        at = f"{where}: {error.where}" if error.where else where
        raise SidecarError(error.reason, where=at, expected=error.expected, found=error.found) from error
