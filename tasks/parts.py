"""What a build leaves when it fails: nothing. Parts that wait for a set go when the last process that works on it ends."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
from pathlib import Path

_HELD: dict[Path, int] = {}


def hold_parts(directory: Path, lock: Path) -> None:
    """Keep `directory` until this process ends, and remove it then unless another process holds it too.

    `lock` is a file that every process which works on the directory holds, shared. A process that is killed leaves its parts;
    the next build of the set goes on from them.
    """
    if directory in _HELD:
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    _HELD[directory] = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(_HELD[directory], fcntl.LOCK_SH)
    atexit.register(_let_go, directory, os.getpid())


def _let_go(directory: Path, owner: int) -> None:
    if os.getpid() != owner:  # a forked worker
        return
    try:
        fcntl.flock(_HELD.pop(directory), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    shutil.rmtree(directory, ignore_errors=True)
