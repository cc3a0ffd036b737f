"""Marker builds as files, for a compiler that runs elsewhere: checkpoints and `markers.json` out, engines in.

DIR/markers.json               written last: model, flags, what every directory is, hashes, what to run
DIR/build-0 … build-{B-1}      Hugging Face directories
DIR/confirm                    the confirming build
DIR/<build>/engines/           where the compiled engines are expected
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from pipeline.errors import MismatchError, MissingFileError, ToolchainError
from pipeline.files import file_sha256, new_directory, write_json
from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint, plan_markers
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2_command import build_variables, build_words
from pipeline.toolchain.pulsar2_source import write_source
from pipeline.version import TOOL

MARKERS_FILE = "markers.json"
MARKERS_FORMAT = 1
CONFIRM_NAME = "confirm"
ENGINES = "engines"
PATTERNS = {POST_ENGINE: "*_post.axmodel", EMBEDDING_ENGINE: "model.embed_tokens*.bin"}
# what the published `llm_build` compiles; the rest needs the 7.0 compiler's `llm_build2`
LLM_BUILD_TYPES = ("bf16", "s8")
PARALLEL = 8


class MarkerBuild(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A directory: what it is for, the SHA-256 of its files, the vendor's command for it (run where `markers.json` is).

    `kinds` of engine are read of what it is compiled to; others may be there.
    """

    directory: str
    role: str
    kinds: tuple[str, ...]
    files: dict[str, str]
    command: str


class MarkerFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`markers.json`. `model` has one layer of each type; `options` are the flags to compile with."""

    format: int
    tool: str
    model: ModelConfig
    options: CompileOptions
    builds: tuple[MarkerBuild, ...]

    @property
    def plan(self) -> MarkerPlan:
        return plan_markers(self.model, self.options.weight_type, self.options.post_type)


def write_marker_files(config: ModelConfig, options: CompileOptions, output: Path) -> MarkerFiles:
    """Write every marker checkpoint and `markers.json` into `output`, all or nothing.

    Raises
    ------
    ToolchainError : there is something at `output` already
    DecodeRefused : a model that markers cannot number
    """
    plan = plan_markers(config, options.weight_type, options.post_type)
    with new_directory(output) as partial:
        builds = tuple(_write_build(plan, options, build, partial) for build in range(plan.builds + 1))
        written = MarkerFiles(MARKERS_FORMAT, TOOL, plan.config, options, builds)
        write_json(partial / MARKERS_FILE, msgspec.to_builtins(written))
    return written


def _write_build(plan: MarkerPlan, options: CompileOptions, build: int, output: Path) -> MarkerBuild:
    name = CONFIRM_NAME if build == plan.confirm else f"build-{build}"
    write_source(output / name, marker_checkpoint(plan, build))
    files = {path.name: file_sha256(path) for path in sorted((output / name).iterdir())}
    role = "confirms the layouts" if build == plan.confirm else "numbers the elements"
    return MarkerBuild(name, role, plan.kinds(build), files, vendor_command(options, name))


def vendor_command(options: CompileOptions, directory: str) -> str:
    """The command line of the vendor's compiler as published (pulsar2_command.py)."""
    second = options.weight_type not in LLM_BUILD_TYPES
    words = ["pulsar2", *build_words(options, directory, f"{directory}/{ENGINES}", second, PARALLEL)]
    return shlex.join([*(f"{name}={value}" for name, value in build_variables(options).items()), *words])


def read_marker_files(directory: Path) -> MarkerFiles:
    """Read `markers.json` and check that every checkpoint that is still there is the one that was written.

    Raises
    ------
    MissingFileError, ToolchainError : not a directory of markers, or another version's
    MismatchError : a checkpoint that has changed, a build that `markers.json` does not list
    """
    path = directory / MARKERS_FILE
    if not path.is_file():
        raise MissingFileError("not a directory of marker builds", file=path)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=MarkerFiles)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolchainError(f"not a list of marker builds: {error}", file=path) from None
    if found.format != MARKERS_FORMAT:
        raise ToolchainError("another format", file=path, expected=MARKERS_FORMAT, found=found.format)
    _check_builds(directory, found)
    return found


def _check_builds(directory: Path, found: MarkerFiles) -> None:
    listed = [build.directory for build in found.builds]
    expected = [*(f"build-{n}" for n in range(found.plan.builds)), CONFIRM_NAME]
    if listed != expected:
        raise MismatchError("other builds than the model needs", file=directory / MARKERS_FILE, expected=len(expected))
    for extra in sorted({path.name for path in directory.glob("build-*")} - set(listed)):
        raise MismatchError("a build that is not of these markers", file=directory / extra, expected=" ".join(listed))
    for build in found.builds:
        _check_checkpoint(directory / build.directory, build.files)


def _check_checkpoint(directory: Path, files: dict[str, str]) -> None:
    for name, expected in files.items():
        path = directory / name
        if path.is_file() and (sha256 := file_sha256(path)) != expected:
            raise MismatchError("the checkpoint has changed", file=path, expected=expected, found=sha256)


def compiled_engines(directory: Path, markers: MarkerFiles, kind: str, engines: str, layer: int = 0) -> list[Path]:
    """One engine of every build that the kind is decoded from, in the order of `markers.builds`.

    Parameters
    ----------
    engines : the subdirectory of a build that holds what was compiled from it

    Raises MissingFileError or MismatchError naming the build.
    """
    pattern = f"*_l{layer}_together.axmodel" if kind == LAYER else PATTERNS[kind]
    read = [markers.builds[build] for build in markers.plan.builds_of(kind)]
    return [_the_file(directory / build.directory / engines, pattern) for build in read]


def _the_file(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if not found:
        raise MissingFileError("the build has no such engine, compile it first", file=directory / pattern)
    if len(found) > 1:
        names = " ".join(path.name for path in found)
        raise MismatchError("several engines of one build", file=directory, expected=pattern, found=names)
    return found[0]
