"""`engineset sidecar convert IN OUT`: between `*.layout.toml` and the published loader's `layout_v4.bin` (AXL4)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from layouts.axl4 import read_axl4, write_axl4
from layouts.axl4_records import MAGIC
from layouts.codecs import CODECS
from layouts.errors import SidecarError
from layouts.sidecar import read_layout, write_layout
from layouts.stored import EngineLayout
from pipeline.cli.locate import blob_offset
from pipeline.container.blob import weight_blob

AXL4_SUFFIX, OURS_SUFFIX = ".bin", ".toml"


@click.group()
def sidecar() -> None:
    """Work with decoded layouts as files."""


@sidecar.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("output", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--engine", type=click.Path(path_type=Path), help="The engine file in which the weights lie.")
@click.option("--strict", is_flag=True, help="Refuse a layout that AXL4 cannot hold completely.")
@click.option("--codec", "codecs", multiple=True, metavar="[TENSOR=]CODEC", help="Of AXL4 tensors; bf16 by default.")
def convert(source: Path, output: Path, engine: Path | None, strict: bool, codecs: tuple[str, ...]) -> None:
    """Write a layout in the other format: OUT ends in .bin for AXL4, in .toml for ours.

    AXL4 has absolute offsets: to it, they count with the place of the weights in the --engine, or else in the engine that the
    layout was decoded from. From it without --engine, addresses count from the beginning of the file.
    """
    if is_axl4(source):
        _check_suffix(output, OURS_SUFFIX)
        write_layout(output, _from_axl4(source, engine, codecs))
        return
    if codecs:
        raise click.UsageError("--codec is for reading AXL4")
    _check_suffix(output, AXL4_SUFFIX)
    layout = read_layout(source)
    lost = write_axl4(output, layout, blob_offset(layout, engine), strict)
    if lost:
        click.echo(f"note: {output} does not tell everything: {'; '.join(grouped(lost))}", err=True)


def is_axl4(path: Path) -> bool:
    """By content; what is empty or unreadable by its suffix, so that the format's own reader says what is wrong."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError:
        start = b""
    return start == MAGIC or path.suffix == AXL4_SUFFIX


def grouped(notes: Iterable[str]) -> list[str]:
    """`tensor: what` as `what (tensors)`, in order of appearance."""
    tensors: dict[str, list[str]] = {}
    for note in notes:
        tensor, what = note.rsplit(": ", 1)
        tensors.setdefault(what, []).append(tensor)
    return [f"{what} ({', '.join(names)})" for what, names in tensors.items()]


def _from_axl4(source: Path, engine: Path | None, codecs: tuple[str, ...]) -> EngineLayout:
    given = _codecs(codecs)
    if engine is None:
        return _known(read_axl4(source, codec=given), given, source)
    blob = weight_blob(engine)
    return _known(read_axl4(source, blob.offset, blob.size, given, blob=blob.name), given, source)


def _codecs(given: tuple[str, ...]) -> dict[str, str] | str:
    plain = [codec for codec in given if "=" not in codec]
    named = dict(item.rsplit("=", 1) for item in given if "=" in item)
    for codec in (*plain, *named.values()):
        if codec not in CODECS:
            raise click.BadParameter(f"{codec}: known are {', '.join(CODECS)}", param_hint="--codec")
    if len(plain) > 1 or (plain and named):
        raise click.BadParameter("one for all tensors, or TENSOR=CODEC for each", param_hint="--codec")
    return plain[0] if plain else named


def _known(layout: EngineLayout, codecs: dict[str, str] | str, source: Path) -> EngineLayout:
    for name in () if isinstance(codecs, str) else codecs.keys() - set(layout.names()):
        raise SidecarError("no such tensor", file=source, where=name, expected=", ".join(layout.names()))
    return layout


def _check_suffix(output: Path, suffix: str) -> None:
    if output.suffix != suffix:
        raise SidecarError("the other format is wanted", file=output, expected=f"a name that ends in {suffix}")
