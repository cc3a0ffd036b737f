"""`engineset evaluate SET`"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from pipeline.checkpoint.open import open_checkpoint
from pipeline.cli.output import as_json, print_json
from pipeline.engineset.manifest import Manifest, read_manifest
from pipeline.errors import MismatchError
from pipeline.evaluate.evaluate import evaluate_set
from pipeline.evaluate.recipe import Places, set_recipe

Where = click.Path(path_type=Path)


@click.command()
@click.argument("directory", metavar="SET", type=Where)
@click.option("--gguf", type=Where, help="The source, if it is not where the manifest says.")
@click.option("--lora", type=Where, help="The adapter that was merged, likewise.")
@click.option(
    "--base", type=Where, help="The GGUF that the templates were compiled from, where their scales were kept."
)
@click.option("--twin", type=Where, help="Keep the F32 twin of the source here, for the next time.")
@click.option("--text", type=Where, help="UTF-8 text to be scored instead of the one that is shipped.")
@click.option(
    "--positions", type=click.IntRange(2), help="Tokens to be scored; 1024, fewer for a vocabulary above 196608."
)
@as_json
def evaluate(
    directory: Path,
    gguf: Path | None,
    lora: Path | None,
    base: Path | None,
    twin: Path | None,
    text: Path | None,
    positions: int | None,
    as_json: bool,
) -> None:
    """Compare a set with llama.cpp and with an independent control; exit code 1 when a gate is not met."""
    manifest = read_manifest(directory)
    recipe = set_recipe(directory, manifest, Places(gguf, lora, base))
    _check_model(directory, manifest, recipe.gguf)
    window = int(manifest.template.options["kv_cache_len"])
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        kept = twin or Path(scratch) / "twin.gguf"
        result = evaluate_set(directory, recipe, kept, positions=positions, window=window, text=text)
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
    del wanted["kept_rows"]  # the set may have fewer rows than its source
    for field, value in wanted.items():
        if value != given[field]:
            reason = f"not a source of the model of {directory}"
            raise MismatchError(reason, file=source, where=field, expected=value, found=given[field])
