"""`engineset verify SET`"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from pipeline.cli.output import as_json, print_json
from pipeline.engineset.verify import verify_set


@click.command()
@click.argument("directory", metavar="SET", type=click.Path(path_type=Path))
@click.option("--gguf", type=click.Path(path_type=Path), help="The source, if it is not where the manifest says.")
@click.option("--lora", type=click.Path(path_type=Path), help="The adapter, if it is not where the manifest says.")
@as_json
def verify(directory: Path, gguf: Path | None, lora: Path | None, as_json: bool) -> None:
    """Check every file's hash and read every weight back against the source."""
    result = verify_set(directory, gguf, lora)
    if as_json:
        print_json({**asdict(result), "directory": str(result.directory), "ok": not result.faults})
    else:
        click.echo(f"{result.files} files, {result.elements} weights compared, {len(result.faults)} faults")
    for fault in result.faults:
        click.echo(f"error: {fault}", err=True)
    sys.exit(1 if result.faults else 0)
