"""The one module that reads the environment (and `/proc`): what the machine and its user have set up."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")


def variable(name: str) -> str:
    """The value of an environment variable, "" where it is not set."""
    return os.environ.get(name, "")


def child_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a child process sees: our own variables, and `added`."""
    return {**os.environ, **(added or {})}


def memory() -> dict[str, int]:
    """`/proc/meminfo`: name -> bytes; empty on a machine without it."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(value) * 1024 for name, value, _ in fields}


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def host_name() -> str:
    """Of this machine."""
    return socket.gethostname()


def home_directory() -> Path:
    """Of the user who runs this."""
    return Path.home()


def user_name() -> str:
    """Of the account that runs this, "" where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
