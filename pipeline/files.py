"""Whole files and directories, links and hashes: what is written appears complete or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from layouts.atomic import sync_directory, write_beside
from pipeline.errors import ToolchainError


def write_bytes(path: Path, data: bytes) -> None:
    """`data` as the whole of `path`, all or nothing."""
    with write_beside(path) as file:
        file.write(data)


def publish_directory(partial: Path, final: Path) -> None:
    """Rename a finished directory, whose files are synced, to its final name; what stood there, damaged, is replaced."""
    sync_directory(partial)
    damaged = final.with_name(f".{final.name}.damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    if final.is_dir():
        final.replace(damaged)
    partial.replace(final)
    sync_directory(final.parent)
    shutil.rmtree(damaged, ignore_errors=True)


@contextmanager
def new_directory(output: Path) -> Iterator[Path]:
    """A directory beside that becomes `output` when the block ends well, and vanishes when it does not.

    Raises ToolchainError when there is something at `output` already.
    """
    output = output.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ToolchainError("the output is there already and is not an empty directory", file=output)
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
    try:
        yield partial
        partial.chmod(0o755)
        publish_directory(partial, output)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def make_way(path: Path) -> Path:
    """Remove a directory that stands where a cached file belongs; the path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    return path


def files_below(directory: Path) -> list[str]:
    """Names of all files of a directory and of its folders, with `/`, sorted."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: object) -> None:
    """`value` as JSON text, all or nothing."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def point_link(link: Path, target: Path) -> None:
    """Make `link` a relative symbolic link to its sibling `target`, replacing an older link."""
    beside = link.with_name(f".{link.name}.link")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target.name)
    beside.replace(link)
    sync_directory(link.parent)
