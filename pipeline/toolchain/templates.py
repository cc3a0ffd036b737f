"""Template sets: engines of the right shape that hold seeded noise, with a note of where they come from.

Templates are never compiled from the weights that are to be patched in. `template.json` is written last.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from layouts.codecs import Float32
from layouts.confirm import ReadWeight, confirm
from layouts.stored import EngineLayout
from pipeline.axmodel.blob import read_blob
from pipeline.checkpoint.noise import Dtype, NoiseCheckpoint, write_hf_checkpoint
from pipeline.checkpoint.open import open_checkpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.engineset.names import engine_file
from pipeline.errors import DecodeRefused, EngineSetError, MissingFileError, ToolchainError
from pipeline.files import file_sha256, publish_directory, write_bytes
from pipeline.hashes import HashCache
from pipeline.model import ModelConfig
from pipeline.refit.plan import EnginePlan, all_plans
from pipeline.toolchain.compilers import find_compiler
from pipeline.toolchain.options import CompileOptions

TEMPLATE_FILE = "template.json"
TEMPLATE_SEED = 20_260


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`template.json`: compiler, flags, dimensions, the seed of the noise (None: weights not known), hashes of the files."""

    toolchain: str
    version: str
    options: CompileOptions
    model: ModelConfig
    seed: int | None
    files: dict[str, str]


def compile_directory(
    toolchain: str,
    checkpoint: Checkpoint,
    options: CompileOptions,
    final: Path,
    seed: int | None,
    weights: Dtype = "F32",
) -> None:
    """Compile a checkpoint into `final` by way of a Hugging Face directory, as any toolchain wants it.

    Parameters
    ----------
    toolchain : name of the compiler
    seed : of the noise, if the checkpoint is `NoiseCheckpoint`
    weights : `F32`, or `BF16` for values that are exact in it
    """
    partial = final.with_name(f".{final.name}.partial")
    source = final.with_name(f".{final.name}.source")
    try:
        for directory in (partial, source):
            shutil.rmtree(directory, ignore_errors=True)
        partial.mkdir(parents=True)
        write_hf_checkpoint(source, checkpoint, weights)
        compiler = find_compiler(toolchain)
        files = compiler.compile(open_checkpoint(source), partial, options)
        hashes = {path.name: file_sha256(path) for path in files}
        template = Template(toolchain, compiler.version, options, checkpoint.config, seed, hashes)
        write_bytes(partial / TEMPLATE_FILE, json.dumps(msgspec.to_builtins(template), indent=1).encode() + b"\n")
        publish_directory(partial, final)
    finally:
        for directory in (partial, source):
            shutil.rmtree(directory, ignore_errors=True)


def compile_template(toolchain: str, config: ModelConfig, options: CompileOptions, final: Path) -> None:
    """A template set of seeded full float32 noise."""
    compile_directory(toolchain, NoiseCheckpoint(config, TEMPLATE_SEED), options, final, TEMPLATE_SEED)


def template_damage(directory: Path, hashes: HashCache) -> str | None:
    """What is wrong with the files of a template directory, in one line; None when they are as compiled."""
    try:
        return hashes.damage(directory, read_template(directory).files)
    except EngineSetError as error:
        return str(error)


def read_template(directory: Path) -> Template:
    """Read `template.json`.

    Raises MissingFileError or ToolchainError.
    """
    path = directory / TEMPLATE_FILE
    if not path.is_file():
        raise MissingFileError("not a template directory", file=path)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Template)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolchainError(f"not a template's description: {error}", file=path) from None


def confirm_template(directory: Path, layouts: dict[str, EngineLayout], others: dict[str, Path]) -> list[str]:
    """Confirm the layouts on every engine of a template set.

    Parameters
    ----------
    others : kind of engine -> an engine of the same compiler, flags and shape with other weights

    Returns
    -------
    the files confirmed

    Raises
    ------
    ToolchainError : a template whose weights are not known, or whose bytes are not those that were compiled
    DecodeRefused : a layout that does not predict an engine; names the file
    """
    template = read_template(directory)
    if template.seed is None:
        raise ToolchainError("the weights in the template are not known", file=directory / TEMPLATE_FILE)
    noise, confirmed = NoiseCheckpoint(template.model, template.seed), []
    for plan in all_plans(template.model):
        name = engine_file(template.model, template.options.prefill_len, plan.kind, plan.layer)
        path = directory / name
        _check_pristine(path, template.files.get(name))
        blob = read_blob(path)
        try:
            confirm(layouts[plan.kind], [blob, read_blob(others[plan.kind])], blob, _known(noise, plan))
        except DecodeRefused as error:
            raise error.in_file(path) from None
        confirmed.append(name)
    return confirmed


def _check_pristine(path: Path, expected: str | None) -> None:
    if not path.is_file():
        raise MissingFileError("the template set lacks an engine", file=path)
    found = file_sha256(path)
    if found != expected:
        raise ToolchainError(
            "the template has been changed since it was compiled", file=path, expected=expected, found=found
        )


def _known(checkpoint: Checkpoint, plan: EnginePlan) -> ReadWeight:
    return known_weights(checkpoint, {item.tensor: item.sources[0] for item in plan.assignments}.__getitem__)


def known_weights(checkpoint: Checkpoint, source_of: Callable[[str], str]) -> ReadWeight:
    """A checkpoint's tensors as the decoder reads them: engine names, vectors as one row."""

    def read(tensor: str, rows: slice) -> Float32:
        source = source_of(tensor)
        if len(checkpoint.shape(source)) == 1:
            return checkpoint.read(source)[None]
        return checkpoint.read(source, rows)

    return read
