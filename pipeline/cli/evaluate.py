"""`engineset evaluate SET`"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from pipeline.checkpoint.open import open_checkpoint, source_files
from pipeline.cli.output import as_json, print_json
from pipeline.engineset.manifest import Manifest, read_manifest
from pipeline.engineset.sources import source_of
from pipeline.errors import MismatchError
from pipeline.evaluate.evaluate import POSITIONS, evaluate_set


@click.command()
@click.argument("directory", metavar="SET", type=click.Path(path_type=Path))
@click.option("--gguf", type=click.Path(path_type=Path), help="The source, if it is not where the manifest says.")
@click.option(
    "--twin", type=click.Path(path_type=Path), help="Keep the F32 twin of the source here, for the next time."
)
@click.option(
    "--text", type=click.Path(path_type=Path), help="UTF-8 text to be scored instead of the one that is shipped."
)
@click.option("--positions", type=click.IntRange(2), default=POSITIONS, show_default=True, help="Tokens to be scored.")
@as_json
def evaluate(
    directory: Path, gguf: Path | None, twin: Path | None, text: Path | None, positions: int, as_json: bool
) -> None:
    """Compare a set with llama.cpp and with an independent control; exit code 1 when a gate is not met."""
    manifest = read_manifest(directory)
    source = source_of(directory, manifest, gguf)
    if source.is_dir():
        raise MismatchError("llama.cpp compares GGUF files only, name one with --gguf", file=source)
    if len(source_files(source)) > 1:
        raise MismatchError(
            "a split GGUF cannot be evaluated, name the same model in one file with --gguf", file=source
        )
    _check_model(directory, manifest, source)
    window = int(manifest.template.options["kv_cache_len"])
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        kept = twin or Path(scratch) / "twin.gguf"
        result = evaluate_set(directory, source, kept, positions=positions, window=window, text=text)
    if as_json:
        print_json(result.as_dict())
    else:
        for line in result.lines():
            click.echo(line)
    for failure in result.failures():
        click.echo(f"error: gate not met: {failure}", err=True)
    sys.exit(1 if result.failures() else 0)


def _check_model(directory: Path, manifest: Manifest, source: Path) -> None:
    """Refuse a source of other dimensions than the set's before anything is computed with it."""
    wanted, given = manifest.model.shape_key(), open_checkpoint(source).config.shape_key()
    for field, value in wanted.items():
        if value != given[field]:
            raise MismatchError(
                f"not a source of the model of {directory}",
                file=source,
                where=field,
                expected=value,
                found=given[field],
            )
