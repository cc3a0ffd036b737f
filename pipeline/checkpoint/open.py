"""From a path to a source of weights."""

from __future__ import annotations

from pathlib import Path

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.gguf_split import open_shards
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint, hf_files
from pipeline.checkpoint.onnx_source import OnnxSource
from pipeline.checkpoint.protocol import Checkpoint, WeightSource
from pipeline.checkpoint.safetensors_file import SafetensorsSource
from pipeline.checkpoint.source_file import SourceFile
from pipeline.errors import CheckpointError

_GGUF, _SAFETENSORS, _ONNX = "gguf", "safetensors", "onnx"
_IR_VERSION = 0x08  # the tag of an ONNX file's first field


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
    _refuse_without_config(path)
    return GgufCheckpoint(path)


def open_weights_source(path: str | Path) -> WeightSource:
    """Opens what `open_checkpoint` takes, an ONNX model, or one safetensors file of any network; reads headers only.

    Raises
    ------
    MissingFileError : the path, or a file that it refers to, is not there
    CheckpointError : malformed, truncated, without weights, or reaching for files outside its directory
    """
    path = Path(path)
    kind = "" if path.is_dir() else _kind(path)
    if kind == _ONNX:
        return OnnxSource(path)
    return SafetensorsSource(path) if kind == _SAFETENSORS else open_checkpoint(path)


def source_files(path: str | Path) -> list[Path]:
    """All files that make up the source at `path`, in a fixed order: what to hash to name its content."""
    path = Path(path)
    if path.is_dir():
        return hf_files(path)
    kind = _kind(path)
    if kind == _ONNX:
        return OnnxSource(path).files
    return [path] if kind == _SAFETENSORS else [file.path for file in open_shards(path)]


def _kind(path: Path) -> str:
    """What a file is, by its content; the suffix decides for one that begins like none of them."""
    source = SourceFile(path)
    start = source.read(0, min(16, source.size)).tobytes()
    if start.startswith(b"GGUF"):
        return _GGUF
    if path.suffix == ".safetensors" or start[8:10] == b'{"':
        return _SAFETENSORS
    return _ONNX if path.suffix == ".onnx" or start[:1] == bytes([_IR_VERSION]) else _GGUF


def _refuse_without_config(path: Path) -> None:
    kind = _kind(path)
    if kind == _SAFETENSORS:
        raise CheckpointError("name its directory, which holds config.json too", file=path)
    if kind == _ONNX:
        raise CheckpointError("an ONNX model, which does not say what language model it is", file=path)
