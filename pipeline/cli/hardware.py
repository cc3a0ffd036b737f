"""`engineset hardware-report`: one file to send to those who have no card and no compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from pipeline.cli.markers import of_config
from pipeline.cli.output import as_json, print_json, print_table
from pipeline.config import load_config
from pipeline.hardware.card import LIBRARY
from pipeline.hardware.report import Asked, check_report_path, make_report, report_json, write_report


@click.command("hardware-report")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="report.tar.gz or report.json.")
@click.option("--engine", "engines", multiple=True, type=click.Path(path_type=Path), help="A vendor engine; repeat it.")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="The weights that the engines were compiled from.")
@click.option("--lib", "library", default=LIBRARY, show_default=True, help="The card's library.")
@click.option(
    "--config", type=click.Path(path_type=Path), help="A config: its model, its compiler's command and flags."
)
@as_json
def hardware_report(
    output: Path, engines: tuple[Path, ...], checkpoint: Path | None, library: str, config: Path | None, as_json: bool
) -> None:
    """Collect what this machine's card, compiler and engines say into one file.

    Nothing is sent anywhere. Host name, user name and directories are left out.
    """
    check_report_path(output)
    asked = Asked(engines, checkpoint, library)
    if config is not None:
        model, options = of_config(config)
        asked = replace(asked, tool=load_config(config).templates.tool(), model=model, options=options)
    sections = make_report(asked)
    write_report(output, sections)
    if as_json:
        print_json(report_json(sections))
        return
    print_table([section.name, section.status, section.reason] for section in sections)
    click.echo(output)
