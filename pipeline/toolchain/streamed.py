"""A child process that is ended in time, with all its children; its output is shown as it comes and kept in a file."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline.environment import child_environment

GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit status, negative for a signal, and whether its time was up."""

    status: int
    in_time: bool

    def __str__(self) -> str:
        return f"signal {-self.status}" if self.status < 0 else f"exit status {self.status}"


def run_streamed(
    command: Sequence[str],
    log: Path,
    seconds: float,
    show: Callable[[str], None],
    added: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command in a process group of its own, which is gone when this returns or raises.

    Parameters
    ----------
    log : gets the bytes of stdout and stderr as they come
    seconds : after which the group is ended: SIGTERM, and SIGKILL for what is left after ten seconds
    show : is called with every line, without what a terminal would take for a command
    added : environment variables besides our own

    Raises OSError where the command cannot be started.
    """
    deadline = time.monotonic() + seconds
    with log.open("wb", buffering=0) as file:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=child_environment(added),
            start_new_session=True,
        )
        try:
            with _ended_with_us(child):
                in_time = _follow(child, file, deadline, show)
        finally:
            _end_group(child)
    return Ended(child.returncode, in_time)


def _follow(child: subprocess.Popen[bytes], file: BinaryIO, deadline: float, show: Callable[[str], None]) -> bool:
    """Read until the child has ended and what it wrote is read; False when the time is up."""
    lines, pipe = _Lines(show), child.stdout
    with selectors.DefaultSelector() as selector:
        if pipe is not None:
            selector.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if pipe is not None and selector.select(_POLL_SECONDS):
                chunk = os.read(pipe.fileno(), 1 << 16)
                file.write(chunk)
                lines.add(chunk)
                if not chunk:
                    selector.unregister(pipe)
                    pipe = None
            elif _has_ended(child):
                lines.flush()
                return True
            elif pipe is None:
                time.sleep(_POLL_SECONDS)
    lines.flush()
    return False


class _Lines:
    """Bytes in any pieces to lines for a terminal; a carriage return ends a line too, as progress bars do."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._rest = show, b""

    def add(self, chunk: bytes) -> None:
        *whole, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            self._say(line)
        if len(self._rest) > _LONGEST_LINE:
            self.flush()

    def flush(self) -> None:
        self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        text = plain(line)
        if text:
            self._show(text)


def plain(line: bytes) -> str:
    """A line as text, with `?` for what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in line.decode("utf-8", "replace").expandtabs()).rstrip()


@contextmanager
def _ended_with_us(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """A signal that ends us ends the child first: in a group of its own it would go on for hours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP)}

    def end(number: int, _: object) -> None:
        _end_group(child)
        signal.signal(number, before[signal.Signals(number)])
        os.kill(os.getpid(), number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Leaves the zombie, whose number keeps that of the group from being given to others."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    if not _has_ended(child):
        os.killpg(child.pid, signal.SIGTERM)
        while not _has_ended(child) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 4)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdout is not None:
        child.stdout.close()
    child.wait()
