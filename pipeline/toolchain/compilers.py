"""Compilers by the name that a config gives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoint.protocol import Checkpoint
from pipeline.errors import ToolchainError
from pipeline.files import file_sha256, new_directory
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.local_tool import INSTALLED, LocalTool
from pipeline.toolchain.options import REFERENCE_VERSION, CompileOptions
from pipeline.toolchain.pulsar2 import PULSAR2, find_pulsar2
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.template_file import CompiledFrom, Template, compiled_from, write_template

REFERENCE = "reference"


@dataclass(frozen=True)
class Compiler:
    """A compiler: its version, which goes into every key, and its one function.

    It is told which kinds of engine are wanted; one that always writes all of them may.
    """

    version: str
    compile: Callable[[Checkpoint, Path, CompileOptions, Collection[str]], list[Path]]


def _pulsar2(tool: LocalTool) -> Compiler:
    found = find_pulsar2(tool)
    return Compiler(found.version, found.compile)


COMPILERS: dict[str, Callable[[LocalTool], Compiler]] = {
    REFERENCE: lambda _: Compiler(REFERENCE_VERSION, compile_model),
    PULSAR2: _pulsar2,
}


def find_compiler(name: str, tool: LocalTool = INSTALLED) -> Compiler:
    """Raises ToolchainError for a compiler that is not there, or that does not say its version."""
    if name not in COMPILERS:
        raise ToolchainError("no such compiler", where="toolchain", expected=" | ".join(COMPILERS), found=name)
    return COMPILERS[name](tool)


def compile_described(
    name: str,
    checkpoint: Checkpoint,
    output: Path,
    options: CompileOptions,
    seed: int | None = None,
    origin: CompiledFrom | None = None,
    kinds: Collection[str] = KINDS,
    tool: LocalTool = INSTALLED,
) -> list[Path]:
    """Compile into an empty directory and write `template.json` beside the engines; the engines.

    Raises EngineSetError: whatever source and compiler find.
    """
    compiler = find_compiler(name, tool)
    files = compiler.compile(checkpoint, output, options, kinds)
    hashes = {path.name: file_sha256(path) for path in files}
    write_template(output, Template(name, compiler.version, options, checkpoint.config, seed, hashes, origin))
    return files


def compile_published(
    name: str, checkpoint: Checkpoint, output: Path, options: CompileOptions, tool: LocalTool = INSTALLED
) -> list[Path]:
    """Compile a checkpoint's files into a directory beside `output` and publish it as a whole, with its `template.json`.

    Raises
    ------
    ToolchainError : there is something at `output` already
    EngineSetError : whatever source and compiler find; nothing is left behind then
    """
    with new_directory(output) as partial:
        files = compile_described(name, checkpoint, partial, options, origin=compiled_from(checkpoint.path), tool=tool)
    return [output.resolve() / file.name for file in files]
