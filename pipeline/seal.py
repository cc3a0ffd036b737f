"""A seal lists what a step has made or relied on, by hash: written last, it says that the step is done and with what."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from pipeline.files import write_json
from pipeline.hashes import HashCache


def write_seal(seal: Path, files: Iterable[Path], hashes: HashCache) -> None:
    """Write the hashes of `files`, which stand in the seal's directory or are named by their absolute path."""
    write_json(seal, {_name(seal, path): hashes.sha256(path) for path in files})


def seal_damage(seal: Path, hashes: HashCache, files: Iterable[Path] | None = None) -> str | None:
    """Why a seal does not hold, in one line: a file that has changed, or that should be listed and is not."""
    try:
        listed = msgspec.json.decode(seal.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        return f"{seal}: not a list of hashes: {error}"
    for path in files or ():
        if _name(seal, path) not in listed:
            return f"{seal}: does not list {path}"
    return hashes.damage(seal.parent, listed)


def _name(seal: Path, path: Path) -> str:
    """`directory / name` gives the file for both kinds of name."""
    return path.name if path.parent == seal.parent else str(path.absolute())
