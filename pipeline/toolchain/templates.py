"""Template sets: engines of the right shape, compiled from seeded noise or from a checkpoint whose hashes are noted.

Templates are never compiled from the weights that are to be patched in.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from layouts.confirm import ReadWeight, confirm
from layouts.stored import EngineLayout
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.container.blob import read_blob
from pipeline.engineset.names import engine_file
from pipeline.errors import DecodeRefused, EngineSetError, MissingFileError, ToolchainError
from pipeline.files import file_sha256, publish_directory
from pipeline.hashes import HashCache
from pipeline.model import ModelConfig
from pipeline.refit.plan import EnginePlan, all_plans, folded_kinds, read_assigned
from pipeline.toolchain.compilers import compile_described
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.local_tool import INSTALLED, LocalTool
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_file import TEMPLATE_FILE, CompiledFrom, read_template, template_weights

TEMPLATE_SEED = 20_260


def compile_directory(
    toolchain: str,
    checkpoint: Checkpoint,
    options: CompileOptions,
    final: Path,
    seed: int | None = None,
    origin: CompiledFrom | None = None,
    kinds: Collection[str] = KINDS,
    tool: LocalTool = INSTALLED,
) -> None:
    """Compile a checkpoint into `final` and describe it there, all or nothing.

    Parameters
    ----------
    toolchain : name of the compiler
    seed : of the noise, if the checkpoint is `NoiseCheckpoint`
    origin : the files of the checkpoint, if it has any
    kinds : engines that are wanted of it
    tool : how a compiler that is not ours is called
    """
    partial = final.with_name(f".{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        compile_described(toolchain, checkpoint, partial, options, seed, origin, kinds, tool)
        publish_directory(partial, final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def compile_template(
    toolchain: str, config: ModelConfig, options: CompileOptions, final: Path, tool: LocalTool = INSTALLED
) -> None:
    """A template set of seeded full float32 noise."""
    compile_directory(toolchain, NoiseCheckpoint(config, TEMPLATE_SEED), options, final, TEMPLATE_SEED, tool=tool)


def template_damage(directory: Path, hashes: HashCache) -> str | None:
    """What is wrong with the files of a template directory, in one line; None when they are as compiled."""
    try:
        return hashes.damage(directory, read_template(directory).files)
    except EngineSetError as error:
        return str(error)


def confirm_template(directory: Path, layouts: dict[str, EngineLayout], confirming: Path) -> dict[str, int]:
    """Confirm the layouts on every engine of a template set.

    Parameters
    ----------
    confirming : engines of the same compiler and flags with other weights, one layer of each type (`ModelConfig.single`)

    Returns
    -------
    corrected elements of each engine file (layouts/confirm.py)

    Raises
    ------
    ToolchainError : a template whose weights are not known, or whose bytes are not those that were compiled
    MissingFileError : an engine, or the checkpoint of the template, that is not there
    DecodeRefused : a layout that does not predict an engine; names the file
    """
    template, weights = read_template(directory), template_weights(directory)
    model, prefill_len, corrected = template.model, template.options.prefill_len, {}
    for plan in all_plans(model, folded_kinds(layouts)):
        name = engine_file(model, prefill_len, plan.kind, plan.layer)
        path = directory / name
        _check_pristine(path, template.files.get(name))
        other = confirming / engine_file(model, prefill_len, plan.kind, single_layer(model, plan.layer))
        blob, layout = read_blob(path), layouts[plan.kind]
        if blob.size != layout.blob_bytes:
            reason = f"not an engine of the flags in {TEMPLATE_FILE}: bytes of weights"
            raise ToolchainError(reason, file=path, expected=layout.blob_bytes, found=blob.size)
        try:
            counts = confirm(layout, [blob, read_blob(other)], blob, known_weights(weights, plan))
        except DecodeRefused as error:
            raise error.in_file(path) from None
        corrected[name] = sum(counts.values())
    return corrected


def single_layer(config: ModelConfig, layer: int) -> int:
    """Which layer of `config.single()` is of this layer's type."""
    types = config.single().layer_types
    return types.index(config.layer_type(layer)) if types else 0


def _check_pristine(path: Path, expected: str | None) -> None:
    if not path.is_file():
        raise MissingFileError("the template set lacks an engine", file=path)
    found = file_sha256(path)
    if found != expected:
        raise ToolchainError(
            "the template has been changed since it was compiled", file=path, expected=expected, found=found
        )


def known_weights(checkpoint: Checkpoint, plan: EnginePlan) -> ReadWeight:
    """What an engine of this plan holds of a checkpoint, as decoders read it: engine names, vectors as one row."""
    assignments = {item.tensor: item for item in plan.assignments}
    return lambda tensor, rows: read_assigned(checkpoint, assignments[tensor], rows)
