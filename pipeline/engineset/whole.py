"""Whether a set is all there, by names and sizes: quick enough to be asked before every build. `verify` reads everything."""

from __future__ import annotations

from pathlib import Path

from pipeline.engineset.manifest import read_manifest
from pipeline.errors import EngineSetError


def set_damage(directory: Path) -> str | None:
    """What is wrong with a set at first sight, in one line; None when its manifest holds and every file has its size."""
    try:
        manifest = read_manifest(directory)
    except EngineSetError as error:
        return str(error)
    for name, entry in manifest.files.items():
        path = directory / name
        if not path.is_file():
            return f"{path}: missing"
        if path.stat().st_size != entry.size:
            return f"{path}: size (expected {entry.size}, found {path.stat().st_size})"
    return None
