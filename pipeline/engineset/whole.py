"""Whether a set is all there, by the hashes of its manifest: a file with the stat that it was hashed under is trusted."""

from __future__ import annotations

from pathlib import Path

from pipeline.engineset.manifest import read_manifest
from pipeline.errors import EngineSetError
from pipeline.hashes import HashCache


def set_damage(directory: Path, hashes: HashCache) -> str | None:
    """What is wrong with a set, in one line; None when its manifest holds and every file is the one it lists."""
    try:
        manifest = read_manifest(directory)
    except EngineSetError as error:
        return str(error)
    return hashes.damage(directory, {name: entry.sha256 for name, entry in manifest.files.items()})
