"""GGUF files split into `<prefix>-00001-of-00003.gguf`, with the names and keys of llama.cpp's splitter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.errors import CheckpointError, MissingFileError

_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_SHARDS = 10_000


def open_shards(path: Path) -> list[GgufFile]:
    """The file, or all shards of the split that it belongs to, in order; any shard may be named.

    Raises
    ------
    MissingFileError : a shard is not there
    CheckpointError : file names and `split.*` keys disagree, or a tensor is in two shards, or some are missing
    """
    named = GgufFile(path)
    count = _split_key(named, "count", 1)
    if count <= 1:
        return [named]
    shards = [named if p == path else _open_shard(p, path) for p in shard_paths(path, count)]
    seen: dict[str, Path] = {}
    for number, shard in enumerate(shards):
        for key, expected in (("no", number), ("count", count)):
            found = _split_key(shard, key, -1)
            if found != expected:
                raise CheckpointError(
                    "shard disagrees with its name or its siblings",
                    file=shard.path,
                    where=f"split.{key}",
                    expected=expected,
                    found=found,
                )
        for name in shard.tensors:
            if name in seen:
                raise CheckpointError(f"duplicate tensor, also in {seen[name].name}", file=shard.path, where=name)
            seen[name] = shard.path
    total = shards[0].metadata.get("split.tensors.count", len(seen))
    if total != len(seen):
        raise CheckpointError(
            "tensors of all shards", file=shards[0].path, where="split.tensors.count", expected=total, found=len(seen)
        )
    return shards


def shard_paths(path: Path, count: int) -> list[Path]:
    """The paths of all shards, from the name of one and the count that it holds."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(
            "split file whose name does not say so", file=path, expected="<name>-00001-of-00002.gguf", found=path.name
        )
    if int(match["count"]) != count or count > _MAX_SHARDS:
        raise CheckpointError(
            "shard disagrees with its name", file=path, where="split.count", expected=int(match["count"]), found=count
        )
    return [path.with_name(f"{match['prefix']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _open_shard(path: Path, named: Path) -> GgufFile:
    if not path.exists():
        raise MissingFileError(f"shard is missing, {named.name} needs it", file=path)
    return GgufFile(path)


def _split_key(file: GgufFile, key: str, default: int) -> int:
    value: Any = file.metadata.get(f"split.{key}", default)
    if type(value) is not int:
        raise CheckpointError("wrong type", file=file.path, where=f"split.{key}", expected="integer", found=value)
    return value
