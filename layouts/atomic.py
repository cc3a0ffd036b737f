"""Files that are either whole or not there: write beside, sync, rename. The one way in which this project writes files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NAME_BYTES = 100


def sync_directory(directory: Path) -> None:
    """Make renames in a directory survive a crash."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Beside:
    """A file beside `path` that takes its place with `publish`, or vanishes with `discard`."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.final = path
        self.path = path.with_name(f".{path.name[:NAME_BYTES]}.{secrets.token_hex(4)}.partial")
        self.file: BinaryIO = self.path.open("x+b")  # the mode follows the user's umask

    def publish(self) -> None:
        """Sync the data, rename, sync the directory."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.path.replace(self.final)
        sync_directory(self.final.parent)

    def discard(self) -> None:
        """Remove it, if it has not been published."""
        self.file.close()
        self.path.unlink(missing_ok=True)


@contextmanager
def write_beside(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well, and vanishes when it does not."""
    beside = Beside(path)
    try:
        yield beside.file
        beside.publish()
    finally:
        beside.discard()
