"""`engineset refit ENGINE`: other weights in one finished engine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from pipeline.cli.output import as_json, print_json, print_pairs, print_table
from pipeline.refit.choose import ScaleMode
from pipeline.refit.report import TensorReport
from pipeline.refit.single_refit import Refitted, Sources, layout_for, refit_file

LISTED = 8

layout_option = click.option(
    "--layout",
    "sidecar",
    type=click.Path(path_type=Path),
    help="Where its weights are; one of the known ones if left out.",
)
layer_option = click.option(
    "--layer", type=click.IntRange(0), help="The layer whose weights go into an engine of a layer."
)
scales_option = click.option(
    "--scales",
    type=click.Choice(get_args(ScaleMode)),
    default="refit",
    show_default=True,
    help="How scales are chosen.",
)


@click.command()
@click.argument("engine", type=click.Path(path_type=Path))
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="The weights that go in.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The engine that is written.")
@layout_option
@click.option("--base", type=click.Path(path_type=Path), help="The weights that ENGINE was compiled from.")
@layer_option
@scales_option
@as_json
def refit(
    engine: Path,
    checkpoint: Path,
    output: Path,
    sidecar: Path | None,
    base: Path | None,
    layer: int | None,
    scales: ScaleMode,
    as_json: bool,
) -> None:
    """Put the weights of an ONNX, safetensors or GGUF file or of a Hugging Face directory into a finished engine.

    The layout is confirmed first: it names the very engine by what is outside its weights, or predicts it from --base.
    """
    named = layout_for(engine, sidecar)
    done = refit_file(engine, named, Sources(checkpoint, base, layer), scales, output)
    warn_of_unused(done.unused)
    if as_json:
        print_json({**asdict(done), "engine": str(engine), "output": str(output)})
    else:
        _show(done)


def warn_of_unused(names: list[str]) -> None:
    """Says on stderr which tensors of the source the engine has no place for."""
    if names:
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        listed = ", ".join(names[:LISTED]) + more
        warnings.warn(f"the layout has no place for {listed}: of these the engine keeps what it has", stacklevel=2)


def _show(done: Refitted) -> None:
    report = done.report
    print_pairs(
        [
            ("layout", done.layout),
            ("confirmed", done.confirmed),
            ("bytes of weights", report.planned_bytes),
            ("bytes changed", report.changed_bytes),
        ]
    )
    click.echo("")
    print_table([("weight", "stored as", "elements", "largest error", ""), *_rows(report.tensors)])


def _rows(tensors: dict[str, TensorReport]) -> Iterator[tuple[Any, ...]]:
    for name, item in tensors.items():
        counts = {"absent": item.absent, "clipped": item.clipped, "corrections kept": item.corrected_kept}
        remarks = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        yield name, item.codec, item.elements, f"{item.max_error:.3g}", remarks
