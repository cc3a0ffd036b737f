"""`engineset inspect FILE`: a GGUF, an engine or an engine set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from pipeline.axmodel.describe import describe_engine
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.checkpoint.looks_like import looks_like
from pipeline.checkpoint.source_file import SourceFile
from pipeline.cli.output import as_json, print_json, print_pairs, print_table
from pipeline.container.kinds import Container, container_of
from pipeline.engineset.manifest import read_manifest
from pipeline.errors import ContainerError
from pipeline.refit.report import clipped_tensors
from pipeline.rknn.describe import describe_rknn
from pipeline.rknn.walk import TILE_AXES, walk_rknn

LONGEST = 60
# a truncated axmodel is still one: it begins with the protobuf tag of ONNX's first field
GGUF_MAGIC, ONNX_TAG = b"GGUF", b"\x08"
START_BYTES = 64

Show = Callable[[dict[str, Any]], None]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@as_json
def inspect(file: Path, as_json: bool) -> None:
    """Describe a GGUF, an engine (.axmodel, .rknn) or an engine set."""
    start = b"" if file.is_dir() else _start_of(file)
    show: Show
    if file.is_dir():
        description, show = _describe_set(file), _show_pairs
    elif file.suffix == ".gguf" or start.startswith(GGUF_MAGIC):
        description, show = _describe_gguf(file), _show_gguf
    else:
        description, show = _describe_engine(file, start)
    if as_json:
        print_json(description)
    else:
        show(description)


def _start_of(file: Path) -> bytes:
    source = SourceFile(file)
    return source.read(0, min(START_BYTES, source.size)).tobytes()


def _describe_engine(file: Path, start: bytes) -> tuple[dict[str, Any], Show]:
    kind = container_of(file) if start else Container.HEADERLESS
    if kind is Container.RKNN:
        return describe_rknn(walk_rknn(file)), _show_rknn
    if kind is Container.AXMODEL or start.startswith(ONNX_TAG):
        return describe_engine(walk_engine(file)), _show_engine
    raise ContainerError("neither a GGUF nor an engine", file=file, found=looks_like(start))


def _describe_set(directory: Path) -> dict[str, Any]:
    manifest = msgspec.to_builtins(read_manifest(directory))
    description = {
        key: manifest[key] for key in ("name", "identity", "tool", "model", "source", "template", "scales", "files")
    }
    return description | {"clipped": clipped_tensors(manifest["engines"])}


def _describe_gguf(path: Path) -> dict[str, Any]:
    gguf = GgufFile(path)
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "version": gguf.version,
        "alignment": gguf.alignment,
        "big_endian": gguf.big_endian,
        "metadata": {key: _value(gguf.metadata[key]) for key in gguf.metadata},
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "type": t.type_name, "offset": t.offset, "bytes": t.nbytes}
            for t in gguf.tensors.values()
        ],
    }


def _value(value: Any) -> Any:
    """Scalars as they are; an array as its length and its first elements."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (bool, int, float, str)):
        return value
    return {"length": len(value), "first": [getattr(v, "item", lambda v=v: v)() for v in value[:3]]}


def _show_pairs(description: dict[str, Any]) -> None:
    if clipped := description.get("clipped"):
        total = f"{sum(clipped.values())} elements in {len(clipped)} tensors (--json names them)"
        description = description | {"clipped": total}
    flat = {key: value for key, value in description.items() if not isinstance(value, dict)}
    nested = {
        f"{key}.{name}": v for key, value in description.items() if isinstance(value, dict) for name, v in value.items()
    }
    print_pairs((key, _short(value)) for key, value in (flat | nested).items())


def _show_gguf(description: dict[str, Any]) -> None:
    tensors = description.pop("tensors")
    _show_pairs(description)
    types = Counter(tensor["type"] for tensor in tensors)
    click.echo(f"\n{len(tensors)} tensors: {', '.join(f'{n} {kind}' for kind, n in types.items())}")
    print_table([t["name"], t["type"], "x".join(map(str, t["shape"])), t["offset"], t["bytes"]] for t in tensors)


def _show_engine(description: dict[str, Any]) -> None:
    groups, blobs = description.pop("groups"), description.pop("blobs")
    print_pairs((key, _short(value)) for key, value in description.items())
    for group in groups:
        parts = {"microcode": group["microcode"], "weights": group["weights"]}
        click.echo(
            "\n" + "  ".join([group["name"], *(f"{what} {', '.join(keys)}" for what, keys in parts.items() if keys)])
        )
        for way in ("inputs", "outputs"):
            print_table([f"  {way[:-1]}", io["name"], io["dtype"], io["shape"]] for io in group[way])
    click.echo("")
    print_table(["blob", blob["name"], f"at {blob['offset']}", f"{blob['bytes']} bytes"] for blob in blobs)


def _show_rknn(description: dict[str, Any]) -> None:
    graphs, blobs = description.pop("graphs"), description.pop("blobs")
    print_pairs((key, _short(value)) for key, value in description.items() if key != "summary")
    for graph in graphs:
        click.echo("")
        print_table(_rknn_row(tensor) for tensor in graph["tensors"])
        click.echo("")
        print_table(
            [op["type"], op["name"], ", ".join(op["inputs"]), ", ".join(op["outputs"])] for op in graph["operators"]
        )
    click.echo("")
    print_table(["blob", blob["name"], f"at {blob['offset']}", f"{blob['bytes']} bytes"] for blob in blobs)


def _rknn_row(tensor: dict[str, Any]) -> list[object]:
    shapes = ["x".join(map(str, tensor["shape"])), _tiles(tensor["stored_shape"])]
    place = "" if tensor["offset"] is None else f"at {tensor['offset']}"
    scale = " ".join(f"{s:.6g} {z:+d}" for s, z in zip(tensor["scales"], tensor["zero_points"], strict=False))
    return [tensor["name"], tensor["kind"], tensor["dtype"], *shapes, place, tensor["bytes"] or "", scale]


def _tiles(stored: list[int]) -> str:
    """A weight of several groups of tiles has six numbers for each."""
    groups = [stored[i : i + TILE_AXES] for i in range(0, len(stored), TILE_AXES)]
    return " | ".join("x".join(map(str, group)) for group in groups)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
