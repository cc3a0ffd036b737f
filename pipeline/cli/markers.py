"""`engineset markers make`: what has to be compiled where the compiler is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from pipeline.checkpoint.open import open_checkpoint
from pipeline.cli.output import as_json, print_json
from pipeline.model import ModelConfig
from pipeline.resolve import resolve_job
from pipeline.toolchain.marker_files import MARKERS_FILE, write_marker_files
from pipeline.toolchain.options import CompileOptions

_DEFAULTS = CompileOptions()


@click.group()
def markers() -> None:
    """Marker builds: checkpoints whose engines show where every element is stored."""


@markers.command()
@click.option("--config", type=click.Path(path_type=Path), help="The model and the flags of an engine set's config.")
@click.option("--input_path", type=click.Path(path_type=Path), help="The model of a Hugging Face directory or a GGUF.")
@click.option("-w", "--weight_type", default=_DEFAULTS.weight_type, show_default=True, help="bf16, fp32, s8 or s4.")
@click.option("--post_weight_type", default="", help="Of the head.")
@click.option("--kv_cache_len", default=_DEFAULTS.kv_cache_len, show_default=True, help="Rows of the decode cache.")
@click.option("--prefill_len", default=_DEFAULTS.prefill_len, show_default=True, help="Tokens of a prefill call.")
@click.option("--last_kv_cache_len", multiple=True, type=int, help="A prefix of the prefill ladder; repeat it.")
@click.option("--chip", default=_DEFAULTS.chip, show_default=True, help="Target.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Where the checkpoints go.")
@as_json
def make(config: Path | None, input_path: Path | None, output: Path, as_json: bool, **flags: Any) -> None:
    """Write the marker checkpoints of a model and `markers.json`, which says what to run on each.

    Flags of the compiler are given with --input_path; a config has its own.
    """
    given = click.get_current_context().get_parameter_source
    if (config is None) == (input_path is None):
        raise click.UsageError("give --config or --input_path")
    if config is not None and any(given(name) is click.core.ParameterSource.COMMANDLINE for name in flags):
        raise click.UsageError("a config has its own flags of the compiler")
    model, options = _of_checkpoint(str(input_path), flags) if config is None else of_config(config)
    written = write_marker_files(model, options, output)
    if as_json:
        print_json(msgspec.to_builtins(written))
        return
    click.echo(f"{output / MARKERS_FILE}: {len(written.builds)} builds; run in {output}:")
    for build in written.builds:
        click.echo(build.command)


def of_config(path: Path) -> tuple[ModelConfig, CompileOptions]:
    """The model and the flags of a set's config."""
    with tempfile.TemporaryDirectory(prefix="engineset-") as scratch:
        job = resolve_job(path, None, Path(scratch) / "hashes.sqlite")
        return job.template_model, job.options


def _of_checkpoint(path: str, flags: dict[str, Any]) -> tuple[ModelConfig, CompileOptions]:
    return open_checkpoint(path).config, CompileOptions(**flags)
