"""`manifest.json`: what an engine set is, file by file; written last and sealed by its own hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from pipeline.engineset.names import MANIFEST_FILE, EngineNames
from pipeline.errors import MissingFileError, VerifyError
from pipeline.files import write_bytes
from pipeline.hashes import digest
from pipeline.model import ModelConfig
from pipeline.refit.choose import ScaleMode

FORMAT = 3
MAX_BYTES = 64 << 20


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the set: size in bytes and hex SHA-256."""

    size: int
    sha256: str


class AdapterEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A LoRA adapter that was merged: absolute path as given, the factor of its change, hash of each file by name."""

    path: str
    scale: float
    files: dict[str, str]


class SourceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the weights came from: absolute path as given, hash of each file by name, tensors by type.

    adapter : what was merged into them
    vocab_keep : the set's file of the token ids whose rows the head has, "" where it has all
    """

    path: str
    files: dict[str, str]
    tensor_types: dict[str, int]
    adapter: AdapterEntry | None = None
    vocab_keep: str = ""


class TemplateEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the weights went into: toolchain, flags, hashes of the template files and of the layouts."""

    toolchain: str
    version: str
    options: dict[str, Any]
    files: dict[str, str]
    layouts: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole manifest.

    names : what its engines are called
    scales : how scales of integer weights were chosen (docs/quantization.md)
    engines : engine file -> its report (pipeline/refit/report.py)
    """

    format: int
    name: str
    identity: str
    tool: str
    model: ModelConfig
    names: EngineNames
    source: SourceEntry
    template: TemplateEntry
    scales: ScaleMode
    tokenizer: list[str]
    engines: dict[str, Any]
    files: dict[str, FileEntry]


def encode_manifest(manifest: Manifest) -> bytes:
    """The one text of a manifest; its last field `seal` is the hash of all others."""
    fields = msgspec.to_builtins(manifest)
    fields["seal"] = digest(fields)
    return (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_bytes(directory / MANIFEST_FILE, encode_manifest(manifest))


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a set.

    Raises
    ------
    MissingFileError : not an engine set
    VerifyError : not one of ours, or changed since it was written: every byte counts
    """
    path = directory / MANIFEST_FILE
    if not path.is_file():
        raise MissingFileError("not an engine set: it has no manifest", file=path)
    if path.stat().st_size > MAX_BYTES:
        raise VerifyError("too large for a manifest", file=path, expected=MAX_BYTES, found=path.stat().st_size)
    data = path.read_bytes()
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
        seal, found = fields.pop("seal", None), fields.get("format")
        if type(found) is int and found != FORMAT:  # whose fields may be others
            raise VerifyError("another format", file=path, where="format", expected=FORMAT, found=found)
        manifest = msgspec.convert(fields, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise VerifyError(f"not a manifest: {error}", file=path) from None
    if seal != digest(fields) or encode_manifest(manifest) != data:
        raise VerifyError("changed since it was written", file=path, where="seal", expected=digest(fields), found=seal)
    return manifest
