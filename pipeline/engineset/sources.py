"""The weights that a set is made of: a checkpoint, with an adapter merged and the head trimmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoint.kept import keep_rows, read_ids
from pipeline.checkpoint.lora import adapter_files, merge_adapter
from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.manifest import Manifest
from pipeline.engineset.names import MANIFEST_FILE
from pipeline.errors import MissingFileError, VerifyError
from pipeline.files import file_sha256


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, and what its change is multiplied with."""

    path: Path
    scale: float


def open_weights(path: Path, adapter: Adapter | None = None, kept: list[int] | None = None) -> Checkpoint:
    """A checkpoint, with the adapter merged, with only the rows `kept` of its head; reads headers only.

    Raises EngineSetError: whatever is wrong with either.
    """
    checkpoint = open_checkpoint(path)
    if adapter is not None:
        checkpoint = merge_adapter(checkpoint, adapter.path, adapter.scale)
    return checkpoint if kept is None else keep_rows(checkpoint, kept)


def open_set_source(
    directory: Path, manifest: Manifest, override: Path | None = None, adapter: Path | None = None
) -> Checkpoint:
    """The weights that a set was made of.

    Parameters
    ----------
    directory, manifest : the set
    override : the checkpoint, if it is not where the manifest says; it is not compared with the manifest's hashes
    adapter : the adapter likewise

    Raises
    ------
    MissingFileError, VerifyError : a source or an adapter that is gone or has changed since; an adapter where none was merged
    EngineSetError : whatever is wrong with it
    """
    ids, entry = manifest.source.vocab_keep, manifest.source.adapter
    kept = read_ids(directory / ids, manifest.model.vocab_size) if ids else None
    path = adapter_of(directory, manifest, adapter) if entry or adapter else None
    merged = Adapter(path, entry.scale) if entry and path else None
    return open_weights(source_of(directory, manifest, override), merged, kept)


def source_of(directory: Path, manifest: Manifest, override: Path | None) -> Path:
    """The checkpoint of a set: what the user names, or what the manifest does, if it is there and has not changed.

    Raises MissingFileError or VerifyError.
    """
    path = _present(directory, "source", "--gguf", override or Path(manifest.source.path), override)
    if override is None:
        _check_unchanged("source", source_files(path), manifest.source.files)
    return path


def adapter_of(directory: Path, manifest: Manifest, override: Path | None) -> Path:
    """The adapter of a set that has one, as `source_of`."""
    entry = manifest.source.adapter
    if entry is None:
        raise MissingFileError("the set was built without an adapter", file=directory / MANIFEST_FILE)
    path = _present(directory, "adapter", "--lora", override or Path(entry.path), override)
    if override is None:
        _check_unchanged("adapter", adapter_files(path), entry.files)
    return path


def _present(directory: Path, what: str, option: str, path: Path, override: Path | None) -> Path:
    if not path.exists():
        named = f"the {what} is not there"
        reason = named if override else f"the {what} of the set is not there, name it with {option}"
        raise MissingFileError(reason, file=path, where=str(directory / MANIFEST_FILE))
    return path


def _check_unchanged(what: str, files: list[Path], hashes: Mapping[str, str]) -> None:
    for file in files:
        expected, found = hashes.get(file.name), file_sha256(file)
        if found != expected:
            reason = f"not the {what} that the set was built from"
            raise VerifyError(reason, file=file, expected=expected, found=found)
