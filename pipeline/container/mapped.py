"""What all containers have in common: a file mapped read-only, and ranges of its bytes that have a name."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ContainerError, MissingFileError

Buffer = memoryview


@dataclass(frozen=True)
class Blob:
    """A range of bytes of a file: absolute `offset` and `size`, in bytes."""

    name: str
    offset: int
    size: int

    @property
    def stop(self) -> int:
        return self.offset + self.size


@contextmanager
def map_file(path: Path) -> Iterator[Buffer]:
    """The file's bytes, mapped read-only.

    Raises
    ------
    MissingFileError : no such file
    ContainerError : an empty file
    """
    if not path.is_file():
        raise MissingFileError("no such file", file=path)
    if path.stat().st_size == 0:
        raise ContainerError("the file is empty", file=path, offset=0)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
