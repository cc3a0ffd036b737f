"""What a weight blob holds: tensors, their copies, the bit planes of each copy, the pieces of each plane."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from layouts.algebra import Layout, Piece
from layouts.codecs import codec
from layouts.digits import Int64
from layouts.errors import LayoutError
from layouts.integers import INTEGERS
from layouts.overlap import check_no_overlap
from layouts.scales import Scales, entry_codec

KINDS = ("layer", "post", "embedding")
MAX_PIECES_PER_PLANE = 4096
_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,200}", re.ASCII)

RowRange = tuple[int, int]


@dataclass(frozen=True)
class Plane:
    """Bits `low_bit .. low_bit + bits` of each stored integer, kept as `field + bias` where the pieces say.

    `bits` is by default the width of the pieces. The pieces are rectangles of the tensor that do not overlap and
    together hold whole rows, not necessarily all of them.
    """

    pieces: tuple[Piece, ...]
    low_bit: int = 0
    bits: int = 0
    bias: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.pieces) <= MAX_PIECES_PER_PLANE:
            raise LayoutError("number of pieces out of range", expected="1 to 4096", found=len(self.pieces))
        widths = {piece.layout.width for piece in self.pieces}
        if len(widths) != 1:
            raise LayoutError("pieces of one plane differ in width", found=sorted(widths))
        object.__setattr__(self, "pieces", tuple(sorted(self.pieces, key=lambda p: (p.row, p.col))))
        object.__setattr__(self, "bits", self.bits or self.width)
        if not (0 <= self.low_bit < 64 and 1 <= self.bits <= self.width):
            raise LayoutError("bits of the plane out of range", expected=f"1 to {self.width}", found=self.bits)
        if not 0 <= self.bias < 1 << self.width:
            raise LayoutError("bias of the plane out of range", expected=f"{self.width} bits", found=self.bias)
        _check_tiling(self.pieces)

    @property
    def width(self) -> int:
        """Bits of one stored element."""
        return self.pieces[0].layout.width

    @property
    def cols(self) -> int:
        return max(piece.col_stop for piece in self.pieces)

    @cached_property
    def rows(self) -> tuple[RowRange, ...]:
        """Ascending ranges of rows that the plane holds, neighbours joined."""
        joined: list[RowRange] = []
        for start, stop in sorted({(p.row, p.row_stop) for p in self.pieces}):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
            else:
                joined.append((start, stop))
        return tuple(joined)

    def addresses(self, start: int, stop: int) -> Int64:
        """Bit addresses of rows `start:stop`, int64 `[stop - start, cols]`; -1 where the plane holds nothing."""
        found = np.full((stop - start, self.cols), -1, np.int64)
        for piece in self.pieces:
            first, end = max(start, piece.row), min(stop, piece.row_stop)
            if first < end:
                target = found[first - start : end - start, piece.col : piece.col_stop]
                target[...] = piece.layout.expand(first - piece.row, end - piece.row)
        return found


@dataclass(frozen=True)
class Copy:
    """One instance of a tensor or of some of its rows: `decode`, `prefill` …

    `entries` places the scale entries of the same rows, `[rows, groups]`; None for float tensors.
    """

    name: str
    planes: tuple[Plane, ...]
    entries: Plane | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_count("planes", self.name, len(self.planes), 8)
        if any(plane.rows != self.rows for plane in self.planes):
            raise LayoutError("planes of one copy hold different rows", where=self.name)
        if self.entries is not None and self.entries.rows != self.rows:
            raise LayoutError("scale entries and planes of one copy hold different rows", where=self.name)

    @property
    def rows(self) -> tuple[RowRange, ...]:
        """Ascending ranges of rows that the copy holds."""
        return self.planes[0].rows


@dataclass(frozen=True)
class StoredTensor:
    """A tensor and every place it is stored in; the first copy is complete.

    `shape` is (rows, cols), (1, n) for a vector. `scales` is given for integer codecs and for no other. `folded` names the
    norm of this engine whose gain is multiplied into the columns before they are quantized, "" for none.

    Raises
    ------
    LayoutError : a plane outside the shape, planes that do not make up the codec's integer, an incomplete first copy,
        scale entries that the codec does not have or that do not fit `scales`
    """

    name: str
    shape: tuple[int, int]
    codec: str
    copies: tuple[Copy, ...]
    scales: Scales | None = None
    folded: str = ""

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.folded:
            _check_name(self.folded)
        if (self.scales is not None) != (self.codec in INTEGERS):
            raise LayoutError("integer codecs have scales, others have none", where=self.name, found=self.codec)
        width = INTEGERS[self.codec].width if self.codec in INTEGERS else codec(self.codec).width
        _check_count("copies", self.name, len(self.copies), 16)
        if len({copy.name for copy in self.copies}) != len(self.copies):
            raise LayoutError("two copies of one name", where=self.name)
        for copy in self.copies:
            self._check_copy(copy, width)
        if self.copies[0].rows != ((0, self.shape[0]),):
            found = self.copies[0].rows
            raise LayoutError("first copy lacks rows", where=self.name, expected=f"0 to {self.shape[0]}", found=found)

    def copy(self, name: str) -> Copy:
        """Raises LayoutError for an unknown name."""
        for copy in self.copies:
            if copy.name == name:
                return copy
        known = " | ".join(copy.name for copy in self.copies)
        raise LayoutError("no such copy", where=self.name, expected=known, found=name)

    def layouts(self) -> Iterator[Layout]:
        """Every layout of every plane and of the scale entries of every copy."""
        for copy in self.copies:
            for plane in (*copy.planes, *([copy.entries] if copy.entries else [])):
                yield from (piece.layout for piece in plane.pieces)

    def _check_copy(self, copy: Copy, width: int) -> None:
        at = f"{self.name}: {copy.name}"
        bit = 0
        for plane in sorted(copy.planes, key=lambda p: p.low_bit):
            if plane.cols != self.shape[1] or plane.rows[-1][1] > self.shape[0]:
                found = [plane.rows[-1][1], plane.cols]
                raise LayoutError("plane and tensor differ in shape", where=at, expected=list(self.shape), found=found)
            if plane.low_bit != bit:
                found_bit = plane.low_bit
                raise LayoutError("planes do not follow each other", where=at, expected=f"bit {bit}", found=found_bit)
            bit += plane.bits
        if bit != width:
            raise LayoutError(f"planes do not make up {self.codec}", where=at, expected=f"{width} bits", found=bit)
        self._check_entries(copy.entries, at)

    def _check_entries(self, entries: Plane | None, at: str) -> None:
        if (entries is None) != (self.scales is None):
            raise LayoutError("scale entries without scales, or scales without entries", where=at)
        if entries is None or self.scales is None:
            return
        expected = (entry_codec(self.scales.entry).width, self.scales.groups(self.shape[1]))
        if (entries.width, entries.cols) != expected:
            found = [entries.width, entries.cols]
            raise LayoutError("scale entries of another shape", where=at, expected=list(expected), found=found)


@dataclass(frozen=True)
class EngineLayout:
    """All weights of one blob.

    Parameters
    ----------
    kind : layer, post or embedding
    blob : name of the blob in its container, such as `npu_params`
    blob_bytes : its size
    blob_offset : where it begins in the engine file that the layout was decoded from
    tensors : engine tensor names are HF names without `model.layers.{l}.`

    Raises
    ------
    LayoutError : a name twice, a piece outside the blob, two elements in one place.
    """

    kind: str
    blob: str
    blob_bytes: int
    tensors: tuple[StoredTensor, ...]
    blob_offset: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError("unknown kind of engine", expected=" | ".join(KINDS), found=self.kind)
        _check_name(self.blob)
        if not (0 <= self.blob_bytes < 1 << 50 and 0 <= self.blob_offset < 1 << 50):
            raise LayoutError("size of the blob out of range", where=self.blob, found=self.blob_bytes)
        if len({tensor.name for tensor in self.tensors}) != len(self.tensors):
            raise LayoutError("two tensors of one name", where=self.blob)
        owned = [(tensor.name, layout) for tensor in self.tensors for layout in tensor.layouts()]
        for name, layout in owned:
            if layout.extent[1] > self.blob_bytes * 8:
                expected = f"{self.blob_bytes * 8} bits"
                raise LayoutError("piece outside the blob", where=name, expected=expected, found=layout.extent[1])
        check_no_overlap(owned)

    def names(self) -> list[str]:
        return [tensor.name for tensor in self.tensors]

    def __getitem__(self, name: str) -> StoredTensor:
        """Raises LayoutError for an unknown name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise LayoutError("no such tensor in the layout", where=name)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise LayoutError("not a name", expected="letters, digits and _ . - /", found=repr(name[:80]))


def _check_count(what: str, where: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise LayoutError(f"number of {what} out of range", where=where, expected=f"1 to {most}", found=count)


def _check_tiling(pieces: tuple[Piece, ...]) -> None:
    """Between any two row cuts the pieces stand side by side and fill all columns."""
    cols = max(piece.col_stop for piece in pieces)
    cuts = sorted({cut for piece in pieces for cut in (piece.row, piece.row_stop)})
    starting: dict[int, list[Piece]] = {}
    for piece in pieces:
        starting.setdefault(piece.row, []).append(piece)
    active: list[Piece] = []
    for cut in cuts:
        active = [piece for piece in active if piece.row_stop > cut] + starting.get(cut, [])
        edge = 0
        for piece in sorted(active, key=lambda p: p.col):
            if piece.col != edge:
                reason = "pieces of one plane overlap" if piece.col < edge else "pieces leave columns out"
                raise LayoutError(reason, where=f"[{cut}, {min(edge, piece.col)}]")
            edge = piece.col_stop
        if active and edge != cols:
            raise LayoutError("pieces leave columns out", where=f"[{cut}, {edge}]")
