"""`engineset decode`: layouts from one engine and its weights, or from marker builds that were compiled anywhere."""

from __future__ import annotations

from pathlib import Path

import click

from layouts.sidecar import write_layout
from pipeline.checkpoint.open import open_weights_source
from pipeline.cli.decode_anchored import describe_anchored, plot_anchored, show_anchored
from pipeline.cli.decode_markers import describe_decoded, show_decoded
from pipeline.cli.output import as_json, print_json
from pipeline.decode.anchored import decode_engine
from pipeline.engineset.names import layout_file
from pipeline.files import new_directory
from pipeline.toolchain.decode_files import decode_marker_files
from pipeline.toolchain.marker_files import ENGINES

PATH = click.Path(path_type=Path)


@click.command()
@click.argument("engine", required=False, type=PATH)
@click.option("--checkpoint", type=PATH, help="What ENGINE was compiled from: ONNX, safetensors, HF directory or GGUF.")
@click.option("--markers", type=PATH, help="Instead of ENGINE: what `markers make` wrote.")
@click.option("--engines-subdir", default=ENGINES, show_default=True, help="Where each marker build has its engines.")
@click.option("--plot", type=PATH, help="A picture of the blobs, coloured by tensor (PNG, SVG or PDF).")
@click.option("--strict", is_flag=True, help="Exit code 1 when a tensor of the checkpoint has no layout.")
@click.option("-o", "--output", required=True, type=PATH, help="The layout, or of marker builds their directory.")
@as_json
def decode(
    engine: Path | None,
    checkpoint: Path | None,
    markers: Path | None,
    engines_subdir: str,
    plot: Path | None,
    strict: bool,
    output: Path,
    as_json: bool,
) -> int:
    """Find where every element lives, and confirm it.

    From ENGINE and the checkpoint that it was compiled from: writes one layout. Tensors that are not in the engine, or whose
    places it does not tell, are named; compilers drop and fold some.

    From compiled marker builds (--markers): writes layer.layout.toml, post.layout.toml and embedding.layout.toml, all or none.
    """
    if (markers is None) == (engine is None) or (engine is None) != (checkpoint is None):
        raise click.UsageError("give ENGINE and --checkpoint, or --markers")
    if markers is not None:
        if plot is not None:
            raise click.UsageError("--plot goes with ENGINE")
        _decode_markers(markers, engines_subdir, output, as_json)
        return 0
    assert engine is not None and checkpoint is not None
    missing = _decode_anchored(engine, checkpoint, plot, output, as_json)
    return 1 if strict and missing else 0


def _decode_anchored(engine: Path, checkpoint: Path, plot: Path | None, output: Path, as_json: bool) -> bool:
    found = decode_engine(engine, open_weights_source(checkpoint))
    if plot is not None:
        plot_anchored(found, plot)
    write_layout(output, found.layout)
    if as_json:
        print_json(describe_anchored(found))
    else:
        show_anchored(found)
    for finding in found.missing:
        click.echo(f"no layout: {engine.name}: {finding.name}: {finding.reason}", err=True)
    return bool(found.missing)


def _decode_markers(markers: Path, engines_subdir: str, output: Path, as_json: bool) -> None:
    with new_directory(output) as partial:
        decoded = decode_marker_files(markers, engines_subdir)
        for one in decoded:
            write_layout(partial / layout_file(one.layout.kind), one.layout)
    if as_json:
        print_json([describe_decoded(one) for one in decoded])
    else:
        for one in decoded:
            show_decoded(one)
