"""`engineset locate SIDECAR TENSOR ROW COL`: the bits of one element, and of the scale that goes with it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from layouts.sidecar import read_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.cli.output import as_json, print_json, print_table
from pipeline.container.blob import weight_blob
from pipeline.errors import LayoutError, MismatchError
from pipeline.model import ARCHITECTURES
from pipeline.toolchain.kinds import LAYER

_LAYER_PREFIX = re.compile(r"model\.layers\.\d+\.")
_VECTORS = {spec.name for arch in ARCHITECTURES.values() for spec in (*arch.layer, *arch.post()) if len(spec.dims) == 1}
_PLANES = ("fine", "coarse")

Place = dict[str, Any]


@click.command()
@click.argument("sidecar", type=click.Path(path_type=Path))
@click.argument("tensor")
@click.argument("row", type=click.IntRange(0))
@click.argument("col", type=click.IntRange(0))
@click.option("--engine", type=click.Path(path_type=Path), help="Take the offset of the weights from this engine file.")
@as_json
def locate(sidecar: Path, tensor: str, row: int, col: int, engine: Path | None, as_json: bool) -> None:
    """Print where each copy and plane of an element stands: absolute byte in the engine file, bit, width.

    ROW is the index on the first axis, COL counts row-major behind it. The element of a vector is 0 INDEX or INDEX 0.
    """
    layout = read_layout(sidecar)
    try:
        found = locate_element(layout, tensor, row, col, _offset(layout, engine))
    except LayoutError as error:
        raise error.in_file(sidecar) from None
    if as_json:
        print_json(found)
    else:
        _show(found)


def locate_element(layout: EngineLayout, name: str, row: int, col: int, offset: int) -> dict[str, Any]:
    """Every place of one element and of its scale entry.

    Parameters
    ----------
    name : of the layout, or, of a layer, as a Hugging Face checkpoint has it
    offset : byte at which the blob begins in its file

    Returns
    -------
    `byte` is absolute, `bit` counts from the lowest of that byte, `width` is in bits; the integer's bits from `low_bit` on
    stand there plus `bias`. `shared` tells whether all entries of the row are equal, so that they are one class

    Raises
    ------
    LayoutError : no such tensor, an element outside it
    """
    stored = _tensor(layout, name)
    if row and not col and stored.name in _VECTORS:
        row, col = 0, row
    if row >= stored.shape[0] or col >= stored.shape[1]:
        raise LayoutError("outside the tensor", where=stored.name, expected=_ranges(stored), found=f"{row} {col}")
    found: dict[str, Any] = {"tensor": stored.name, "row": row, "col": col, "codec": stored.codec}
    found["places"] = [place for copy in stored.copies for place in _places(copy, row, col, offset)]
    if stored.scales is None:
        return found | {"scale": []}
    group = col // stored.scales.group
    entries = [entry for copy in stored.copies for entry in _entry(copy, row, group, offset)]
    return found | {"scale": entries, "shared": stored.scales.shared}


def _tensor(layout: EngineLayout, name: str) -> StoredTensor:
    plain = _LAYER_PREFIX.sub("", name, count=1) if layout.kind == LAYER else name
    if plain not in layout.names():
        close = difflib.get_close_matches(plain, layout.names(), cutoff=0.4) or layout.names()
        raise LayoutError("no such tensor in the layout", where=name, expected=" | ".join(close))
    return layout[plain]


def _ranges(stored: StoredTensor) -> str:
    rows, cols = stored.shape
    return f"ROW 0 to {rows - 1}, COL 0 to {cols - 1}"


def _places(copy: Copy, row: int, col: int, offset: int) -> Iterator[Place]:
    planes = sorted(copy.planes, key=lambda plane: plane.low_bit)
    for index, plane in enumerate(planes):
        name = "value" if len(planes) == 1 else _PLANES[index] if len(planes) == len(_PLANES) else f"plane{index}"
        for place in _place(copy.name, name, plane, row, col, offset):
            yield place | {"low_bit": plane.low_bit, "bias": plane.bias}


def _entry(copy: Copy, row: int, group: int, offset: int) -> Iterator[Place]:
    if copy.entries is not None:
        for place in _place(copy.name, "scale", copy.entries, row, group, offset):
            yield place | {"row": row, "group": group}


def _place(copy: str, name: str, plane: Plane, row: int, col: int, offset: int) -> Iterator[Place]:
    """One place, or none where the copy does not hold the row."""
    for piece in plane.pieces:
        if piece.row <= row < piece.row_stop and piece.col <= col < piece.col_stop:
            byte, bit = divmod(piece.layout.address(row - piece.row, col - piece.col), 8)
            yield {"copy": copy, "plane": name, "byte": offset + byte, "bit": bit, "width": plane.width}


def _offset(layout: EngineLayout, engine: Path | None) -> int:
    if engine is None:
        return layout.blob_offset
    blob = weight_blob(engine)
    if blob.size != layout.blob_bytes:
        raise MismatchError(
            "not an engine of this layout", file=engine, where=blob.name, expected=layout.blob_bytes, found=blob.size
        )
    return blob.offset


def _show(found: dict[str, Any]) -> None:
    click.echo(f"{found['tensor']} [{found['row']}, {found['col']}]  {found['codec']}")
    places = [*found["places"], *found["scale"]]
    print_table([("copy", "plane", "byte", "bit", "width"), *(_cells(place) for place in places)])
    if found["scale"]:
        group = found["scale"][0]["group"]
        kind = "the entries of the row are one class: all are equal" if found["shared"] else "an entry for each group"
        click.echo(f"scale of group {group}; {kind}")


def _cells(place: Place) -> list[object]:
    return [place[key] for key in ("copy", "plane", "byte", "bit", "width")]
