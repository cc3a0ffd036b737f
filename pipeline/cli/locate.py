"""`engineset locate SIDECAR TENSOR INDEX...`: the bits of one element, and of the scale and the bias that go with it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from layouts.sidecar import read_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.cli.output import as_json, print_json, print_table
from pipeline.container.blob import weight_blob
from pipeline.errors import LayoutError, MismatchError
from pipeline.toolchain.kinds import LAYER

_LAYER_PREFIX = re.compile(r"model\.layers\.\d+\.")
_PLANES = ("fine", "coarse")

Index = tuple[int, ...]
Place = dict[str, Any]


@click.command()
@click.argument("sidecar", type=click.Path(path_type=Path))
@click.argument("tensor")
@click.argument("index", type=click.IntRange(0), nargs=-1, required=True)
@click.option("--engine", type=click.Path(path_type=Path), help="Take the offset of the weights from this engine file.")
@as_json
def locate(sidecar: Path, tensor: str, index: Index, engine: Path | None, as_json: bool) -> None:
    """Print where each copy and plane of an element stands: absolute byte in the engine file, bit, width.

    INDEX is ROW COL: ROW on the first axis that is stored, COL row-major behind it. A tensor of other axes also takes an index
    for each of them, as its checkpoint has it. A vector takes INDEX, 0 INDEX or INDEX 0.
    """
    layout = read_layout(sidecar)
    try:
        found = locate_element(layout, tensor, index, blob_offset(layout, engine))
    except LayoutError as error:
        raise error.in_file(sidecar) from None
    if as_json:
        print_json(found)
    else:
        _show(found)


def locate_element(layout: EngineLayout, name: str, index: Index, offset: int) -> dict[str, Any]:
    """Every place of one element, of its scale entry and of its row's bias entry.

    Parameters
    ----------
    name : of the layout, or, of a layer, as a Hugging Face checkpoint has it; also of a bias that is stored as entries
    index : row and column of the stored matrix, or one number for each axis of the source array
    offset : byte at which the blob begins in its file

    Returns
    -------
    `byte` is absolute, `bit` counts from the lowest of that byte, `width` is in bits; the integer's bits from `low_bit` on
    stand there plus `bias`. `index` is the element's place in the source array, `absent` names the copies that do not store
    it. `shared` tells whether all entries of the row are equal, so that they are one class

    Raises
    ------
    LayoutError : no such tensor, an element outside it
    """
    plain = _LAYER_PREFIX.sub("", name, count=1) if layout.kind == LAYER else name
    biased = [stored for stored in layout.tensors if stored.bias is not None and stored.bias.tensor == plain]
    if biased and plain not in layout.names():
        return _bias_element(biased, plain, index, offset)
    stored = _tensor(layout, name, plain)
    row, col = _row_and_col(stored, index)
    found: dict[str, Any] = {"tensor": stored.name, "row": row, "col": col, "codec": stored.codec}
    found["index"] = list(_source_index(stored, row, col))
    found["places"] = [place for copy in stored.copies for place in _places(copy, row, col, offset)]
    found["absent"] = [copy.name for copy in stored.copies if _is_absent(copy, row, col)]
    found["bias"] = [place for copy in stored.copies for place in _entry(copy, "bias", copy.bias, row, 0, offset)]
    if stored.scales is None:
        return found | {"scale": []}
    groups = range(2) if stored.scales.affine else [col // stored.scales.group]
    entries = [
        entry
        for copy in stored.copies
        for group in groups
        for entry in _entry(copy, "scale", copy.entries, row, group, offset)
    ]
    return found | {"scale": entries, "shared": stored.scales.shared}


def _bias_element(biased: list[StoredTensor], name: str, index: Index, offset: int) -> dict[str, Any]:
    """An element of a bias that is no stored tensor of its own: the entries of that row of the weights."""
    row, rows = max(index), min(stored.shape[0] for stored in biased)
    if len(index) > 2 or sum(index) != row or row >= rows:
        given = " ".join(map(str, index))
        raise LayoutError("outside the tensor", where=name, expected=f"INDEX 0 to {rows - 1}", found=given)
    found: dict[str, Any] = {"tensor": name, "row": row, "col": 0, "codec": biased[0].bias and biased[0].bias.entry}
    found |= {"index": [row], "places": [], "absent": [], "weights": [stored.name for stored in biased], "scale": []}
    copies = [copy for stored in biased for copy in stored.copies]
    return found | {"bias": [place for copy in copies for place in _entry(copy, "bias", copy.bias, row, 0, offset)]}


def _tensor(layout: EngineLayout, name: str, plain: str) -> StoredTensor:
    if plain not in layout.names():
        close = difflib.get_close_matches(plain, layout.names(), cutoff=0.4) or layout.names()
        raise LayoutError("no such tensor in the layout", where=name, expected=" | ".join(close))
    return layout[plain]


def _row_and_col(stored: StoredTensor, index: Index) -> tuple[int, int]:
    """The element's place in the stored matrix."""
    dims, (first, stop) = stored.source_shape, _columns(stored)
    if len(dims) == 1 and len(index) <= 2 and sum(index) == max(index):
        index = (0, max(index)) if stored.shape[0] == 1 else (max(index), 0)
    if len(index) == 2:
        if index[0] < stored.shape[0] and index[1] < stop - first:
            return index[0], index[1]
    elif len(index) == len(dims) and all(i < n for i, n in zip(index, dims, strict=True)):
        order = stored.order or range(len(dims))
        flat = np.ravel_multi_index([index[axis] for axis in order], [dims[axis] for axis in order])
        row, col = divmod(int(flat), math.prod(dims) // stored.shape[0])
        if first <= col < stop:
            return row, col - first
    found = " ".join(map(str, index))
    raise LayoutError("outside the tensor", where=stored.name, expected=_ranges(stored), found=found)


def _source_index(stored: StoredTensor, row: int, col: int) -> Index:
    dims = stored.source_shape
    order = stored.order or range(len(dims))
    cols = math.prod(dims) // stored.shape[0]
    places = np.unravel_index(row * cols + _columns(stored)[0] + col, [dims[axis] for axis in order])
    found = dict(zip(order, places, strict=True))
    return tuple(int(found[axis]) for axis in range(len(dims)))


def _columns(stored: StoredTensor) -> tuple[int, int]:
    """The columns of the source's matrix that are stored; padding has none."""
    first = stored.columns[0] if stored.columns else 0
    return first, first + stored.shape[1] - stored.padding


def _ranges(stored: StoredTensor) -> str:
    rows, cols = stored.shape[0], stored.shape[1] - stored.padding
    pair = f"ROW 0 to {rows - 1}, COL 0 to {cols - 1}"
    dims = stored.source_shape
    return pair if len(dims) < 3 else f"{pair}, or indices below {'x'.join(map(str, dims))}"


def _is_absent(copy: Copy, row: int, col: int) -> bool:
    return any(rect.row <= row < rect.row_stop and rect.col <= col < rect.col_stop for rect in copy.absent)


def _places(copy: Copy, row: int, col: int, offset: int) -> Iterator[Place]:
    planes = sorted(copy.planes, key=lambda plane: plane.low_bit)
    for index, plane in enumerate(planes):
        name = "value" if len(planes) == 1 else _PLANES[index] if len(planes) == len(_PLANES) else f"plane{index}"
        for place in _place(copy.name, name, plane, row, col, offset):
            yield place | {"low_bit": plane.low_bit, "bias": plane.bias}


def _entry(copy: Copy, name: str, plane: Plane | None, row: int, group: int, offset: int) -> Iterator[Place]:
    if plane is not None:
        for place in _place(copy.name, name, plane, row, group, offset):
            yield place | {"row": row, "group": group}


def _place(copy: str, name: str, plane: Plane, row: int, col: int, offset: int) -> Iterator[Place]:
    """One place, or none where the copy does not hold the row."""
    for piece in plane.pieces:
        if piece.row <= row < piece.row_stop and piece.col <= col < piece.col_stop:
            byte, bit = divmod(piece.layout.address(row - piece.row, col - piece.col), 8)
            yield {"copy": copy, "plane": name, "byte": offset + byte, "bit": bit, "width": plane.width}


def blob_offset(layout: EngineLayout, engine: Path | None) -> int:
    """Byte at which the blob begins in an engine, or in the one that the layout was decoded from.

    Raises MismatchError for an engine whose weights have another size.
    """
    if engine is None:
        return layout.blob_offset
    blob = weight_blob(engine)
    if blob.size != layout.blob_bytes:
        raise MismatchError(
            "not an engine of this layout", file=engine, where=blob.name, expected=layout.blob_bytes, found=blob.size
        )
    return blob.offset


def _show(found: dict[str, Any]) -> None:
    click.echo(f"{found['tensor']} {found['index']}  {found['codec']}{_matrix_place(found)}")
    places = [*found["places"], *found["scale"], *found["bias"]]
    absent = [(copy, "value", "not stored", "", "") for copy in found["absent"]]
    print_table([("copy", "plane", "byte", "bit", "width"), *absent, *(_cells(place) for place in places)])
    if found["scale"]:
        group = found["scale"][0]["group"]
        kind = "the entries of the row are one class: all are equal" if found["shared"] else "an entry for each group"
        click.echo(f"scale of group {group}; {kind}")
    if found["bias"]:
        click.echo(" of ".join([f"bias of row {found['row']}", *found.get("weights", [])]))


def _matrix_place(found: dict[str, Any]) -> str:
    """Where the element stands in the stored matrix, if that is another matrix than the source's."""
    place = [found["row"], found["col"]]
    return "" if found["index"] in (place, [sum(place)]) else f"  stored as {place}"


def _cells(place: Place) -> list[object]:
    return [place[key] for key in ("copy", "plane", "byte", "bit", "width")]
