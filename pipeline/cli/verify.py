"""`engineset verify`: a set, or one engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from pipeline.cli.output import as_json, print_json
from pipeline.cli.refit import layer_option, layout_option, scales_option, warn_of_unused
from pipeline.engineset.verify import verify_set
from pipeline.refit.choose import ScaleMode
from pipeline.refit.single_refit import layout_for, open_assigned
from pipeline.refit.single_verify import verify_engine


@click.command()
@click.argument("subject", metavar="SET|ENGINE", type=click.Path(path_type=Path))
@click.option(
    "--gguf", type=click.Path(path_type=Path), help="The source of a set, if it is not where the manifest says."
)
@click.option("--lora", type=click.Path(path_type=Path), help="The adapter of a set, likewise.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="The weights that ENGINE is to hold.")
@layout_option
@click.option("--template", type=click.Path(path_type=Path), help="The engine that ENGINE was made from.")
@layer_option
@scales_option
@as_json
def verify(
    subject: Path,
    gguf: Path | None,
    lora: Path | None,
    checkpoint: Path | None,
    sidecar: Path | None,
    template: Path | None,
    layer: int | None,
    scales: ScaleMode,
    as_json: bool,
) -> None:
    """Check every file's hash of a set and read every weight back against the source.

    Of one engine: every weight and entry against --checkpoint, everything else against --template or the layout's hash.
    """
    if checkpoint is None:
        if subject.is_file() or sidecar or template or layer is not None:
            raise click.UsageError("one engine is verified against --checkpoint")
        result = verify_set(subject, gguf, lora)
        _report({"directory": str(subject), "files": result.files, "elements": result.elements}, result.faults, as_json)
    else:
        named = layout_for(subject, sidecar)
        weights, unused = open_assigned(named.layout, checkpoint, layer)
        warn_of_unused(unused)
        found = verify_engine(subject, weights, scales, template)
        _report({"file": str(subject), "layout": named.name, "elements": found.elements}, found.faults, as_json)


def _report(counts: Mapping[str, object], faults: list[str], as_json: bool) -> None:
    if as_json:
        print_json({**counts, "faults": faults, "ok": not faults})
    else:
        files = f"{counts['files']} files, " if "files" in counts else ""
        click.echo(f"{files}{counts['elements']} weights compared, {len(faults)} faults")
    for fault in faults:
        click.echo(f"error: {fault}", err=True)
    sys.exit(1 if faults else 0)
