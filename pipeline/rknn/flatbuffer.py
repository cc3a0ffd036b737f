"""FlatBuffers read in place, every offset checked against the buffer. No schema: a field is asked for by its index.

A table begins with the distance back to its vtable; the vtable holds its own size, the table's size, and a u16 offset
into the table for each field, 0 for one that is absent. Strings, vectors and tables are reached by forward u32 offsets.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.container.mapped import Blob, Buffer
from pipeline.errors import RknnError

# offsets may lead to one place again and again: what is read of one file is limited, in items
MOST_ITEMS, TABLE_ITEMS = 1 << 20, 32


@dataclass
class Region:
    """The buffer: the bytes of the file from `start` to `stop`. All offsets below are of the file."""

    data: Buffer
    start: int
    stop: int
    items: int = 0

    def number(self, at: int, form: str, where: str) -> int:
        """A little-endian integer, `form` as `struct` has it."""
        self.check(at, struct.calcsize(form), where)
        return int(struct.unpack_from(form, self.data, at)[0])

    def check(self, at: int, size: int, where: str) -> None:
        """Raises RknnError unless `size` bytes from `at` on lie in the buffer."""
        if not self.start <= at <= self.stop or size > self.stop - at:
            expected = f"within {self.start} to {self.stop}"
            raise RknnError("points outside the FlatBuffer", where=where, offset=at, expected=expected, found=size)

    def spend(self, items: int, at: int, where: str) -> None:
        """Raises RknnError when more has been read than any engine holds."""
        self.items += items
        if self.items > MOST_ITEMS:
            raise RknnError("tables hold too much", where=where, offset=at, expected=MOST_ITEMS, found=self.items)

    def follow(self, at: int, where: str) -> int:
        """What the forward offset at `at` leads to."""
        return at + self.number(at, "<I", where)

    def root(self) -> Table:
        return self.table(self.follow(self.start, "root"), "root")

    def table(self, at: int, where: str) -> Table:
        """Raises RknnError for a table or a vtable that does not lie in the buffer."""
        self.spend(TABLE_ITEMS, at, where)
        vtable = at - self.number(at, "<i", where)
        size, length = (self.number(vtable + 2 * i, "<H", where) for i in range(2))
        if size < 4 or size % 2 or length < 4:
            raise RknnError("not a table of a FlatBuffer", where=where, offset=at, found=[size, length])
        self.check(vtable, size, where)
        self.check(at, length, where)
        return Table(self, at, where, vtable, size, length)


@dataclass(frozen=True)
class Table:
    """A table of `length` bytes at `at`; `where` names it in errors. Made by `Region.table`."""

    region: Region
    at: int
    where: str
    vtable: int
    vtable_size: int
    length: int

    def _field(self, index: int, size: int) -> int | None:
        """Where the field stands, None when it is absent."""
        slot = 4 + 2 * index
        offset = self.region.number(self.vtable + slot, "<H", self.where) if slot < self.vtable_size else 0
        if offset and not 4 <= offset <= self.length - size:
            raise RknnError(f"field {index} lies outside its table", where=self.where, offset=self.at, found=offset)
        return self.at + offset if offset else None

    def number(self, index: int, form: str) -> int:
        """An integer; 0 when it is absent."""
        at = self._field(index, struct.calcsize(form))
        return 0 if at is None else self.region.number(at, form, self.where)

    def vector(self, index: int, item_size: int) -> tuple[int, int]:
        """First byte and length of a vector of `item_size` bytes each; (start of the table, 0) when it is absent."""
        at = self._field(index, 4)
        if at is None:
            return self.at, 0
        where = f"{self.where}.{index}"
        first = self.region.follow(at, where)
        count = self.region.number(first, "<I", where)
        self.region.check(first + 4, count * item_size, where)
        return first + 4, count

    def text(self, index: int) -> str:
        start, count = self.vector(index, 1)
        self.region.spend(count, start, self.where)
        try:
            return bytes(self.region.data[start : start + count]).decode()
        except UnicodeDecodeError as error:
            raise RknnError("not UTF-8", where=f"{self.where}.{index}", offset=start + error.start) from None

    def array(self, index: int, dtype: str) -> npt.NDArray[np.generic]:
        start, count = self.vector(index, np.dtype(dtype).itemsize)
        self.region.spend(count, start, self.where)
        return np.frombuffer(self.region.data, dtype, count, start).copy()

    def blob(self, index: int, name: str) -> Blob:
        start, count = self.vector(index, 1)
        return Blob(name, start, count)

    def tables(self, index: int, name: str) -> list[Table]:
        start, count = self.vector(index, 4)
        self.region.spend(count, start, self.where)
        places = [start + 4 * i for i in range(count)]
        return [self.region.table(self.region.follow(at, name), f"{name}[{i}]") for i, at in enumerate(places)]
