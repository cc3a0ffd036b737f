"""A file of weights, read by position and never whole."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG

import numpy as np
import numpy.typing as npt

from pipeline.errors import CheckpointError, MissingFileError


class CheckpointWarning(UserWarning):
    """Something odd in a source that can still be read without doubt."""


class SourceFile:
    """Positional reads of a file that must stay what it was when it was opened.

    Raises MissingFileError when it is not there, CheckpointError when it cannot be read or changes while in use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            stat = path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError("no such file", file=path) from error
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", file=path) from error
        if not S_ISREG(stat.st_mode):
            raise CheckpointError("not a regular file", file=path)
        self._stat = _identity(stat)
        self.size = self._stat[0]

    def read(self, offset: int, count: int, where: str | None = None) -> npt.NDArray[np.uint8]:
        """Exactly `count` bytes from `offset`; `where` names the reader's interest in an error."""
        if offset < 0 or count < 0 or offset > self.size or count > self.size - offset:
            raise CheckpointError(
                "ends too early", file=self.path, where=where, offset=offset, expected=offset + count, found=self.size
            )
        data = np.empty(count, np.uint8)
        try:
            with self.path.open("rb", buffering=0) as file:
                self._check_unchanged(file.fileno())
                done = 0
                while done < count and (step := os.preadv(file.fileno(), [data[done:].data], offset + done)):
                    done += step
        except OSError as error:
            raise CheckpointError(f"cannot be read: {error.strerror}", file=self.path, where=where) from error
        if done < count:
            raise CheckpointError("shrank while it was read", file=self.path, where=where, offset=offset + done)
        return data

    def _check_unchanged(self, handle: int) -> None:
        if _identity(os.fstat(handle)) != self._stat:
            raise CheckpointError("changed since it was opened", file=self.path)


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
