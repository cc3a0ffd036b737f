"""`engineset plan --config C`: what a build would do, before anything is written."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from pipeline import paths
from pipeline.cli.output import as_json, print_json, print_pairs, print_table
from pipeline.cli.types import FiniteRange
from pipeline.engineset.preview import Preview, preview_job
from pipeline.engineset.preview_engines import EnginePreview
from pipeline.engineset.sources import Adapter
from pipeline.resolve import resolve_job

UNKNOWN = "?"


@click.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="TOML file of the engine set.")
@click.option("--gguf", type=click.Path(path_type=Path), help="Weights, instead of the config's source.")
@click.option("--lora", type=click.Path(path_type=Path), help="LoRA adapter merged into the weights.")
@click.option("--lora-scale", type=FiniteRange(), default=1.0, show_default=True, help="Factor of its change.")
@click.option("--build-dir", type=click.Path(path_type=Path), default=Path("build"), show_default=True)
@as_json
def plan(config: Path, gguf: Path | None, lora: Path | None, lora_scale: float, build_dir: Path, as_json: bool) -> None:
    """Say which weights come from where, what stands in the way, what clips, and how much of each engine changes.

    Nothing is written outside the build directory, and there only hashes of files and sources that packages hold in pieces.
    Exit code 1 where the build would refuse.
    """
    if lora is None and lora_scale != 1.0:
        raise click.UsageError("--lora-scale goes with --lora")
    adapter = Adapter(lora.absolute(), lora_scale) if lora else None
    found = preview_job(build_dir, resolve_job(config, gguf, paths.hash_database(build_dir), adapter))
    if as_json:
        totals = {"planned_bytes": _total(e.planned_bytes for e in found.engines)}
        totals |= {"changed_bytes": _total(e.changed_bytes for e in found.engines), "clipped": _clipped(found.engines)}
        print_json(asdict(found) | {"totals": totals, "ok": not found.refused})
    else:
        _show(found)
    for line in [line for lines in found.faults.values() for line in lines] + (
        found.why if found.confirmed == "refused" else []
    ):
        click.echo(f"error: {line}", err=True)
    sys.exit(1 if found.refused else 0)


def _show(found: Preview) -> None:
    for engine in found.engines:
        layer = f" {engine.layer}" if engine.kind == "layer" else ""
        click.echo(f"{engine.file}  {engine.kind}{layer}: {_bytes(engine)}")
        print_table(_rows(engine))
    print_pairs(
        [
            ("set", found.name),
            ("source", found.source),
            *([("adapter", found.adapter)] if found.adapter else []),
            ("templates", found.templates),
            ("scales", found.scales),
            ("confirmed on these templates", "; ".join([found.confirmed, *found.why])),
            *((kind, f"{len(lines)}") for kind, lines in found.faults.items()),
            ("clipped", _text(_clipped(found.engines))),
            ("planned bytes", _text(_total(engine.planned_bytes for engine in found.engines))),
            ("bytes that change", _text(_total(engine.changed_bytes for engine in found.engines))),
            ("cache", found.cache),
        ]
    )


def _rows(engine: EnginePreview) -> Iterable[list[object]]:
    for weight in engine.weights:
        sources = " + ".join(f"{part.stored_as} {part.type}" for part in weight.sources)
        clipped = "" if weight.clipped == 0 else f"{_text(weight.clipped)} clipped"
        yield ["", weight.tensor, weight.codec or UNKNOWN, sources, ", ".join(weight.transforms), clipped]


def _bytes(engine: EnginePreview) -> str:
    return f"{_text(engine.planned_bytes)} bytes planned, {_text(engine.changed_bytes)} of them change"


def _text(number: int | None) -> str:
    return UNKNOWN if number is None else str(number)


def _clipped(engines: list[EnginePreview]) -> int | None:
    return _total(weight.clipped for engine in engines for weight in engine.weights)


def _total(numbers: Iterable[int | None]) -> int | None:
    """None as soon as one is not known."""
    known = list(numbers)
    return None if not known or None in known else sum(number or 0 for number in known)
