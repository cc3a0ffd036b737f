"""What the containers of a package say: lengths of cache and prefill calls, and whether they are engines of one model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.axmodel.walk import Engine, EngineIo, ShapeGroup, walk_engine
from pipeline.errors import AxmodelError, EngineSetError, MissingFileError, ToolchainError, fault_lines
from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import LAYER, POST_ENGINE
from pipeline.toolchain.template_package import Package


@dataclass(frozen=True)
class Calls:
    """The calls that the engines of layers are compiled for.

    kv_cache_len : rows of the decode cache
    prefill_len : tokens of a prefill call, 1 where there is none
    ladder : prefixes of the prefill calls
    """

    kv_cache_len: int
    prefill_len: int
    ladder: tuple[int, ...]


def walk_package(package: Package, config: ModelConfig) -> tuple[Calls | None, str, list[str]]:
    """The calls of a package, what its compiler says of itself, and one line for each fault.

    Parameters
    ----------
    config : the checkpoint that the package was built from
    """
    faults: list[str] = []
    walked: dict[int, Engine] = {}
    for kind, layer, path in package.engines():
        with faults_into(faults):
            if kind == LAYER:
                walked[layer] = walk_engine(_present(path))
            elif kind == POST_ENGINE:
                _check_post(walk_engine(_present(path)), config)
            else:
                _check_embedding(_present(path), config)
    calls, first = None, next(iter(walked.values()), None)
    if first is not None:
        with faults_into(faults):
            calls = _calls(first, package)
    for layer, engine in walked.items():
        twin = next(other for n, other in walked.items() if _type(config, n) == _type(config, layer))
        with faults_into(faults):
            _check_layer(engine, twin, config)
    return calls, "" if first is None else " ".join((first.doc or first.producer).split()), faults


@contextmanager
def faults_into(faults: list[str]) -> Iterator[None]:
    """What a user can mend becomes lines, so that one fault does not hide another."""
    try:
        yield
    except EngineSetError as error:
        faults += fault_lines(error) or []


def _type(config: ModelConfig, layer: int) -> str:
    """The type of a layer, also of one that the checkpoint lacks."""
    return config.layer_types[layer] if layer < len(config.layer_types) else ""


def _present(path: Path) -> Path:
    if not path.is_file():
        raise MissingFileError("the package lacks an engine", file=path)
    return path


def _check_embedding(path: Path, config: ModelConfig) -> None:
    rows, cols, found = config.vocab_size, config.hidden_size, path.stat().st_size
    if found != 2 * rows * cols:
        raise ToolchainError(f"not {rows} x {cols} bf16", file=path, expected=f"{2 * rows * cols} bytes", found=found)


def _check_post(engine: Engine, config: ModelConfig) -> None:
    for group in engine.groups:
        for what, ios, size in (
            ("hidden size", group.inputs, config.hidden_size),
            ("rows of the head", group.outputs, config.head_rows),
        ):
            if not any(size in io.shape for io in ios):
                found = [list(io.shape) for io in ios]
                raise ToolchainError(what, file=engine.path, where=group.name, expected=size, found=found)


def _check_layer(engine: Engine, twin: Engine, config: ModelConfig) -> None:
    """As wide as the model, and of the shapes of another layer of its type."""
    for group in engine.groups:
        for name, width in (("input", config.hidden_size), ("K_cache", config.kv_width), ("V_cache", config.kv_width)):
            shape = _io(engine, group, name).shape
            if shape[-1] != width:
                raise ToolchainError("width", file=engine.path, where=name, expected=width, found=list(shape))
    if engine.weights.size != twin.weights.size:
        reason = f"bytes of weights differ from those of {twin.path.name}"
        raise ToolchainError(reason, file=engine.path, expected=twin.weights.size, found=engine.weights.size)
    if [(group.inputs, group.outputs) for group in engine.groups] != [(g.inputs, g.outputs) for g in twin.groups]:
        raise ToolchainError(f"inputs or outputs differ from those of {twin.path.name}", file=engine.path)


def _calls(engine: Engine, package: Package) -> Calls:
    lengths = sorted(call_lengths(engine))
    decode = [history for tokens, history in lengths if tokens == 1]
    prefill = [(tokens, history) for tokens, history in lengths if tokens > 1]
    if not decode:
        raise AxmodelError("no call of one token", file=engine.path)
    sizes = sorted({tokens for tokens, _ in prefill}) or [1]
    if len(sizes) > 1 or (prefill and package.prefill not in (None, sizes[0])):
        raise ToolchainError("tokens of a prefill call", file=engine.path, expected=package.prefill, found=sizes)
    return Calls(decode[-1], sizes[0], tuple(history for _, history in prefill))


def call_lengths(engine: Engine) -> Iterator[tuple[int, int]]:
    """Tokens and prefix of every shape group; of a call without a prefix the cache has a row all the same, the mask has not."""
    for group in engine.groups:
        tokens, cache = _io(engine, group, "input").shape[-2], _io(engine, group, "K_cache").shape[-2]
        yield tokens, cache if tokens == 1 else _io(engine, group, "mask").shape[-1] - tokens


def _io(engine: Engine, group: ShapeGroup, name: str) -> EngineIo:
    """An input of a call; in all calls but the first a number is behind its name."""
    for io in group.inputs:
        if re.fullmatch(rf"{name}(_\d+)?", io.name) and len(io.shape) >= 2:
            return io
    reason = f"no engine of a layer: the call {group.name!r} has no input {name!r} of two dimensions or more"
    raise ToolchainError(reason, file=engine.path)
