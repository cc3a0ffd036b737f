"""Files that are either whole or not there: write beside, fsync, rename, fsync the directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

MODE = 0o644


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes its name only when the block ends well; after any exception nothing is left."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        beside = Path(file.name)
        try:
            yield file
            file.flush()
            os.fchmod(file.fileno(), MODE)
            os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
