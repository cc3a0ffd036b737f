"""What the vendor's compiler has to leave: an engine of every layer, a post engine, each a whole container.

Names are told by their ends, `…_l{layer}_together.axmodel` and `…_post.axmodel`: the compiler has words of its own before them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pipeline.axmodel.walk import walk_engine
from pipeline.errors import EngineSetError, ToolchainError
from pipeline.model import ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_groups import call_lengths

_LAYER = re.compile(r".*_l(\d+)_together\.axmodel")
_BF16_BYTES = 2

Made = dict[tuple[str, int], Path]
"""(kind, layer) -> file."""


def made_files(directory: Path, config: ModelConfig, options: CompileOptions, kinds: Collection[str]) -> Made:
    """The files of a compiled model; no embedding where the compiler wrote none, which some versions leave to a script.

    Raises ToolchainError, whose `where` is the file's name: a layer too few or too many, a file that is empty or no whole engine,
    an engine of other calls than were asked for.
    """
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    made: Made = {}
    if LAYER in kinds:
        made |= _layers(files, config.num_hidden_layers)
    if POST_ENGINE in kinds:
        made[POST_ENGINE, 0] = _one(files, "*_post.axmodel")
    for (kind, _), path in made.items():
        _check_engine(path, _asked(options) if kind == LAYER else None)
    if EMBEDDING_ENGINE in kinds and any(path.match("model.embed_tokens*.bin") for path in files):
        made[EMBEDDING_ENGINE, 0] = _embedding(_one(files, "model.embed_tokens*.bin"), config)
    return made


def _layers(files: list[Path], layers: int) -> Made:
    found: Made = {}
    for path in files:
        match = _LAYER.fullmatch(path.name)
        if match is not None:
            layer = int(match[1])
            if layer >= layers or (LAYER, layer) in found:
                raise ToolchainError("an engine too many", where=path.name, expected=f"{layers} layers")
            found[LAYER, layer] = path
    missing = [layer for layer in range(layers) if (LAYER, layer) not in found]
    if missing:
        where = f"layer {missing[0]}" if len(missing) == 1 else f"layers {missing[0]} to {missing[-1]}"
        raise ToolchainError("engines are missing", where=where, expected=f"{layers} layers", found=len(found))
    return found


def _one(files: list[Path], pattern: str) -> Path:
    found = [path for path in files if path.match(pattern)]
    if len(found) != 1:
        names = " ".join(path.name for path in found) or "none"
        raise ToolchainError("not one engine", where=pattern, expected="one file", found=names)
    return found[0]


def _asked(options: CompileOptions) -> list[tuple[int, int]]:
    """Tokens and prefix of every call, ascending."""
    return sorted([(1, options.kv_cache_len), *((options.prefill_len, prefix) for prefix in options.ladder())])


def _check_engine(path: Path, asked: list[tuple[int, int]] | None) -> None:
    try:
        engine = walk_engine(path)
        if not engine.groups or not engine.weights.size:
            raise ToolchainError("it has no weights")
        found = None if asked is None else sorted(call_lengths(engine))
    except EngineSetError as error:
        reason = f"not a whole engine: {error.reason}"
        raise ToolchainError(reason, where=path.name, expected=error.expected, found=error.found) from None
    if found != asked:
        reason = "other calls than were asked for: tokens and rows before them"
        raise ToolchainError(reason, where=path.name, expected=asked, found=found)


def _embedding(path: Path, config: ModelConfig) -> Path:
    expected, found = _BF16_BYTES * config.vocab_size * config.hidden_size, path.stat().st_size
    if found != expected:
        rows = f"{expected} bytes, {config.vocab_size} rows of bf16"
        raise ToolchainError("not the whole embedding", where=path.name, expected=rows, found=found)
    return path
