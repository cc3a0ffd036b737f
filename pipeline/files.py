"""Writing beside and renaming, and content hashes that trust an equal stat."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def write_beside(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well, and vanishes when it does not.

    The data is synced before the rename, the directory after it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".partial", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
        _sync_directory(path.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """`data` as the whole of `path`, all or nothing."""
    with write_beside(path) as file:
        file.write(data)


def publish_directory(partial: Path, final: Path) -> None:
    """Rename a finished directory to its final name; every file in it has been synced by its writer."""
    _sync_directory(partial)
    partial.replace(final)
    _sync_directory(final.parent)


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
