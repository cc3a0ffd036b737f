"""What is printed of layouts that were decoded from marker builds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from layouts.stored import StoredTensor
from pipeline.cli.output import print_table
from pipeline.engineset.names import layout_file
from pipeline.toolchain.decode_files import Decoded


def describe_decoded(engine: Decoded) -> dict[str, Any]:
    """A decoded layout as JSON values."""
    layout = engine.layout
    return {
        "kind": layout.kind,
        "file": layout_file(layout.kind),
        "builds": engine.builds,
        "blob": layout.blob,
        "blob_bytes": layout.blob_bytes,
        "tensors": [_tensor(stored, engine.corrected[stored.name]) for stored in layout.tensors],
    }


def _tensor(stored: StoredTensor, corrected: int) -> dict[str, Any]:
    scales = stored.scales
    return {
        "name": stored.name,
        "shape": list(stored.shape),
        "codec": stored.codec,
        "rule": None if scales is None else f"{'row' if scales.shared else 'group'}/{scales.divisor:g}",
        "copies": [copy.name for copy in stored.copies],
        "entries": None if scales is None else {"entry": scales.entry, "group": scales.group, "shared": scales.shared},
        "folded": stored.folded,
        "corrected": corrected,
    }


def show_decoded(engine: Decoded) -> None:
    """The same as lines."""
    layout = engine.layout
    click.echo(f"{layout_file(layout.kind)}: {layout.blob_bytes} bytes of weights, {engine.builds} builds")
    print_table(["  " + cells[0], *cells[1:]] for cells in (_cells(t) for t in describe_decoded(engine)["tensors"]))


def _cells(tensor: dict[str, Any]) -> list[str]:
    cells = [tensor["name"], "x".join(map(str, tensor["shape"])), tensor["codec"], " + ".join(tensor["copies"])]
    return [*cells, "; ".join(_remarks(tensor))]


def _remarks(tensor: dict[str, Any]) -> Iterator[str]:
    if tensor["rule"] is not None:
        entries = tensor["entries"]
        kind = "one class a row" if entries["shared"] else "one a group"
        yield f"{tensor['rule']}, {entries['entry']} entries of {entries['group']} columns, {kind}"
    if tensor["folded"]:
        yield f"{tensor['folded']} folded"
    if tensor["corrected"]:
        yield f"{tensor['corrected']} corrected"
