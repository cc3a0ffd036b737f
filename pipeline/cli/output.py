"""How results are printed: JSON for programs, aligned lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """`key  value` lines, keys padded to one width."""
    listed = list(pairs)
    width = max((len(key) for key, _ in listed), default=0)
    for key, value in listed:
        click.echo(f"{key:<{width}}  {value}")


def print_table(rows: Iterable[Iterable[object]]) -> None:
    """Columns padded to their widest cell."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*texts, strict=True)]
    for row in texts:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
