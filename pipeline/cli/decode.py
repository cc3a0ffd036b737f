"""`engineset decode --markers DIR`: layouts from marker builds that were compiled anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from layouts.sidecar import write_layout
from layouts.stored import StoredTensor
from pipeline.cli.output import as_json, print_json, print_table
from pipeline.engineset.names import layout_file
from pipeline.files import new_directory
from pipeline.toolchain.decode_files import Decoded, decode_marker_files
from pipeline.toolchain.marker_files import ENGINES


@click.command()
@click.option("--markers", required=True, type=click.Path(path_type=Path), help="What `markers make` wrote.")
@click.option("--engines-subdir", default=ENGINES, show_default=True, help="Where each build has its engines.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Where the layouts go.")
@as_json
def decode(markers: Path, engines_subdir: str, output: Path, as_json: bool) -> None:
    """Find where every element lives, from the compiled marker builds alone, and confirm it.

    Writes layer.layout.toml, post.layout.toml and embedding.layout.toml, all or none.
    """
    with new_directory(output) as partial:
        decoded = decode_marker_files(markers, engines_subdir)
        for engine in decoded:
            write_layout(partial / layout_file(engine.layout.kind), engine.layout)
    if as_json:
        print_json([_description(engine) for engine in decoded])
    else:
        for engine in decoded:
            _show(engine)


def _description(engine: Decoded) -> dict[str, Any]:
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


def _show(engine: Decoded) -> None:
    layout = engine.layout
    click.echo(f"{layout_file(layout.kind)}: {layout.blob_bytes} bytes of weights, {engine.builds} builds")
    print_table(["  " + cells[0], *cells[1:]] for cells in (_cells(t) for t in _description(engine)["tensors"]))


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
