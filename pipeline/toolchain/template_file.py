"""`template.json`: what a directory of compiled engines is, and which weights are in it. Written last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.open import source_files
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.names import MANIFEST_FILE
from pipeline.engineset.sources import open_weights
from pipeline.errors import MissingFileError, ToolchainError
from pipeline.files import file_sha256, write_bytes
from pipeline.model import ModelConfig
from pipeline.toolchain.options import CompileOptions

TEMPLATE_FILE = "template.json"


class CompiledFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoint that engines were compiled from.

    path : absolute
    files : hash of each file by name
    kept : token ids whose rows the head was trimmed to, empty for all
    """

    path: str
    files: dict[str, str]
    kept: tuple[int, ...] = ()


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compiler, flags, dimensions, where the weights come from, hashes of the files.

    The weights are noise of a `seed`, or those of a `checkpoint`; with neither they are not known.
    """

    toolchain: str
    version: str
    options: CompileOptions
    model: ModelConfig
    seed: int | None
    files: dict[str, str]
    checkpoint: CompiledFrom | None = None

    def name_parts(self) -> dict[str, object]:
        """All that decides about the engines, as JSON values: everything but the place of the checkpoint."""
        origin = None if self.checkpoint is None else msgspec.structs.replace(self.checkpoint, path="")
        fields: dict[str, object] = msgspec.to_builtins(msgspec.structs.replace(self, checkpoint=origin))
        return fields


def write_template(directory: Path, template: Template) -> None:
    write_bytes(directory / TEMPLATE_FILE, json.dumps(msgspec.to_builtins(template), indent=1).encode() + b"\n")


def read_template(directory: Path) -> Template:
    """Read `template.json`.

    Raises MissingFileError; ToolchainError, also for an engine set, whose engines have been patched.
    """
    path = directory / TEMPLATE_FILE
    if not path.is_file() and (directory / MANIFEST_FILE).is_file():
        raise ToolchainError("an engine set is no template: its engines have been patched already", file=directory)
    if not path.is_file():
        raise MissingFileError("not a template directory", file=path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Template)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolchainError(f"not a template's description: {error}", file=path) from None


def compiled_from(path: Path, kept: Iterable[int] = ()) -> CompiledFrom:
    """The record of a checkpoint as it is now."""
    return CompiledFrom(
        str(path.absolute()), {file.name: file_sha256(file) for file in source_files(path)}, tuple(kept)
    )


def template_weights(directory: Path) -> Checkpoint:
    """The weights that a template set was compiled from.

    Raises
    ------
    ToolchainError : weights that are not known, a checkpoint that has changed since
    MissingFileError : a checkpoint that is gone
    """
    template, file = read_template(directory), directory / TEMPLATE_FILE
    if template.seed is not None:
        return NoiseCheckpoint(template.model, template.seed)
    if template.checkpoint is None:
        raise ToolchainError("the weights in the template are not known", file=file)
    path = Path(template.checkpoint.path)
    if not path.exists():
        raise MissingFileError("the checkpoint that the template was compiled from is not there", file=path)
    found = compiled_from(path).files
    for name, expected in template.checkpoint.files.items():
        if found.get(name) != expected:
            reason = f"{name} is not the file that the template was compiled from"
            raise ToolchainError(reason, file=path, expected=expected, found=found.get(name))
    return open_weights(path, kept=list(template.checkpoint.kept) or None)
