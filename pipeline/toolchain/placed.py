"""What a memory map is made of: things to be placed, the areas of the blob that they take, and where they stand then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from layouts.algebra import Piece
from layouts.codecs import codec
from layouts.entry_codecs import entry_codec
from layouts.integers import INTEGERS
from layouts.scales import Scales
from layouts.stored import Copy, Plane, StoredTensor
from pipeline.toolchain.microcode import Operand

LOW, HIGH, ENTRIES = range(3)
"""Fields of a tensor: the plane of the lowest bits, the second plane, the scale entries."""

Pieces = tuple[Piece, ...]


@dataclass(frozen=True)
class Item:
    """A thing to be placed: a weight, or a table or other constant of the engine; `shape` rows first.

    folded : the norm that is multiplied into the columns, "" for none
    """

    name: str
    shape: tuple[int, int]
    codec: str
    scales: Scales | None = None
    folded: str = ""
    constant: bool = False

    @property
    def width(self) -> int:
        """Bits of an element."""
        return INTEGERS[self.codec].width if self.codec in INTEGERS else codec(self.codec).width


@dataclass(frozen=True)
class Area:
    """A range of bytes that is placed as one: pieces of some fields of an item, from byte 0 on. `zeroed`: gaps hold 0."""

    fields: Mapping[int, Pieces]
    size: int
    zeroed: bool = False

    def moved(self, size: int) -> Area:
        """The same `size` bytes farther up."""
        fields = {field: tuple(move(piece, 8 * size) for piece in own) for field, own in self.fields.items()}
        return replace(self, fields=fields)

    def followed(self, other: Area) -> Area:
        """This area and right behind it another with the same fields."""
        fields = {field: self.fields[field] + own for field, own in other.moved(self.size).fields.items()}
        return replace(self, fields=fields, size=self.size + other.size)


@dataclass(frozen=True)
class Placed:
    """An item and its copies: the complete one, then the one for prefill where there is one."""

    item: Item
    copies: tuple[Copy, ...]

    def stored(self) -> StoredTensor:
        item = self.item
        return StoredTensor(item.name, item.shape, item.codec, self.copies, item.scales, item.folded)

    def operand(self, prefill: bool) -> Operand:
        """What a group reads: the complete copy; for prefill the copied rows from the second, all others from the first."""
        low, high, entries = ((self._prefill(n) if prefill else _pieces(self.copies[0], n)) for n in range(3))
        scales = self.item.scales
        kind = (self.item.codec, scales.entry if scales else "")
        return Operand(kind, self.item.shape, scales.group if scales else 0, (low, high, entries))

    def _prefill(self, field: int) -> Pieces:
        first = _pieces(self.copies[0], field)
        if len(self.copies) == 1:
            return first
        ((start, stop),) = self.copies[1].rows
        before = [part for piece in first for part in _clip(piece, 0, start)]
        after = [part for piece in first for part in _clip(piece, stop, self.item.shape[0])]
        return (*before, *_pieces(self.copies[1], field), *after)


@dataclass(frozen=True)
class MemoryMap:
    """The whole blob: every item, and its size in bytes.

    fill_seed : gives the bytes of the gaps
    zeroed : ranges of bytes whose gaps are 0 instead
    """

    placed: dict[str, Placed]
    size: int
    fill_seed: int
    zeroed: tuple[tuple[int, int], ...]


def make_copy(name: str, item: Item, fields: Mapping[int, Pieces]) -> Copy:
    """A copy out of the pieces of its fields; biases as in docs/quantization.md."""
    if item.scales is None:
        return Copy(name, (Plane(fields[LOW]),))
    if item.codec == "s4":
        planes: tuple[Plane, ...] = (Plane(fields[LOW], bias=8),)
    else:
        planes = (Plane(fields[LOW]), Plane(fields[HIGH], low_bit=4, bias=8))
    return Copy(name, planes, Plane(fields[ENTRIES]))


def entry_bytes(scales: Scales) -> int:
    return entry_codec(scales.entry).width // 8


def move(piece: Piece, bits: int) -> Piece:
    return replace(piece, layout=replace(piece.layout, base=piece.layout.base + bits))


def _pieces(copy: Copy, field: int) -> Pieces:
    if field == ENTRIES:
        return copy.entries.pieces if copy.entries else ()
    return copy.planes[field].pieces if field < len(copy.planes) else ()


def _clip(piece: Piece, start: int, stop: int) -> list[Piece]:
    """The rows `start:stop` of a piece; `start` falls on a block boundary of the piece."""
    layout = piece.layout
    first, last = max(start - piece.row, 0), min(stop - piece.row, layout.shape[0])
    if first >= last:
        return []
    base = layout.address(first, 0)
    rest = replace(layout, shape=(last - first, layout.shape[1]), base=base)
    return [Piece(piece.row + first, 0, rest)]
