"""From a path to a checkpoint."""

from __future__ import annotations

from pathlib import Path

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.gguf_split import open_shards
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint, hf_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.errors import CheckpointError


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Opens a GGUF file (any shard of a split one) or a Hugging Face directory; reads headers only.

    Raises
    ------
    MissingFileError : the path, or a file that it refers to, is not there
    CheckpointError : malformed, truncated, incomplete, or of an architecture that is not in the table
    """
    path = Path(path)
    if path.is_dir():
        return HfCheckpoint(path)
    _refuse_safetensors(path)
    return GgufCheckpoint(path)


def source_files(path: str | Path) -> list[Path]:
    """All files that make up the checkpoint at `path`, in a fixed order: what to hash to name its content."""
    path = Path(path)
    if path.is_dir():
        return hf_files(path)
    _refuse_safetensors(path)
    return [file.path for file in open_shards(path)]


def _refuse_safetensors(path: Path) -> None:
    if path.suffix == ".safetensors" and path.is_file():
        raise CheckpointError("name its directory, which holds config.json too", file=path)
