"""`engineset diff A B`: what differs between two engines or two sets. Exit code 0, 1 or 2, as those of `diff`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.cli.output import as_json, print_json, print_table
from pipeline.engineset.diff import SetDifference, diff_sets
from pipeline.errors import EngineSetError, fault_lines
from pipeline.refit.confirm import known_layout
from pipeline.refit.diff import EngineDifference, TensorChange, diff_engines

LISTED = 20
SAME, DIFFERENT, TROUBLE = 0, 1, 2


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--layout", "sidecar", type=click.Path(path_type=Path), help="Where the weights of the engines are.")
@as_json
def diff(a: Path, b: Path, sidecar: Path | None, as_json: bool) -> None:
    """Say what differs: by tensor, and every byte that is no tensor's.

    Without --layout sets are compared by the layouts that they carry, engines by a known layout that names one of them, or else
    byte by byte. Exit code 0: equal; 1: different; 2: not compared.
    """
    if a.is_dir() != b.is_dir():
        raise click.UsageError("an engine and a set cannot be compared")
    try:
        layout = None if sidecar is None else read_layout(sidecar)
        differs = _sets(a, b, layout, as_json) if a.is_dir() else _engines(a, b, layout, as_json)
    except (EngineSetError, OSError) as error:
        lines = fault_lines(error)
        if lines is None:
            raise
        for line in lines:
            click.echo(f"error: {line}", err=True)
        sys.exit(TROUBLE)
    sys.exit(DIFFERENT if differs else SAME)


def _engines(a: Path, b: Path, layout: EngineLayout | None, as_json: bool) -> bool:
    known = known_layout(a, b) if layout is None else None
    found = diff_engines(a, b, layout or (known[1] if known else None))
    if as_json:
        name = known[0] if known else None
        print_json({"a": str(a), "b": str(b), "known_layout": name, **_engine_json(found)})
    else:
        if known:
            click.echo(f"layout: {known[0]}")
        _show_engine(found, "")
    return found.differs


def _sets(a: Path, b: Path, layout: EngineLayout | None, as_json: bool) -> bool:
    found = diff_sets(a, b, layout)
    if as_json:
        files = {name: _engine_json(item) for name, item in found.files.items()}
        print_json({**asdict(found), "a": str(a), "b": str(b), "differs": found.differs, "files": files})
    else:
        _show_sets(found, a, b)
    return found.differs


def _engine_json(found: EngineDifference) -> dict[str, Any]:
    tensors = [{**asdict(item), "largest": _number(item.largest)} for item in found.tensors]
    return {"differs": found.differs, "tensors": tensors, "stray": asdict(found.stray)}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _show_sets(found: SetDifference, a: Path, b: Path) -> None:
    for folder, names in ((a, found.only_a), (b, found.only_b)):
        for name in names:
            click.echo(f"only in {folder}: {name}")
    for change in found.manifest:
        click.echo(f"manifest: {change.field}: {change.a} | {change.b}")
    for name, item in found.files.items():
        click.echo(name)
        _show_engine(item, "  ")


def _show_engine(found: EngineDifference, indent: str) -> None:
    changed = [item for item in found.tensors if item.differs]
    if changed:
        head = (
            f"{indent}weight",
            "copy",
            "elements changed",
            "largest change",
            "steps",
            "scale entries",
            "bias entries",
        )
        print_table([head, *(_cells(item, indent) for item in changed)])
    if found.tensors and len(changed) < len(found.tensors):
        click.echo(f"{indent}{len(found.tensors) - len(changed)} of {len(found.tensors)} weights and copies are equal")
    for line in _stray_lines(found):
        click.echo(indent + line)


def _cells(item: TensorChange, indent: str) -> tuple[Any, ...]:
    first = "" if item.first is None else f", first [{item.first[0]}, {item.first[1]}]"
    counts = f"{item.changed} of {item.elements}{first}"
    return (
        indent + item.tensor,
        item.copy,
        counts,
        f"{item.largest:.3g}",
        item.steps,
        item.scale_entries,
        item.bias_entries,
    )


def _stray_lines(found: EngineDifference) -> Iterator[str]:
    outside, where = found.stray, "outside the weights" if found.tensors else "without a layout"
    for region in outside.sizes:
        yield f"{region.name}: {region.sizes[0]} and {region.sizes[1]} bytes"
    if outside.ranges:
        yield f"{outside.bytes} bytes differ {where}, in {len(outside.ranges)} ranges"
    for item in outside.ranges[:LISTED]:
        at = f"byte {item.a}" if item.a == item.b else f"byte {item.a} and byte {item.b}"
        yield f"  {at}: {item.bytes} bytes ({item.region})"
    if len(outside.ranges) > LISTED:
        yield f"  and {len(outside.ranges) - LISTED} more ranges, which --json lists"
