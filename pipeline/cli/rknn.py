"""`engineset rknn`: what needs rknn-toolkit2 in its own environment (`make rknn`); everything else takes `.rknn` without it."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from layouts.sidecar import write_layout
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.toolchain.rknn import TARGET, Inputs, RknnModel, compile_rknn
from pipeline.toolchain.rknn_decode import decode_rknn

PATH = click.Path(path_type=Path)


@click.group()
def rknn() -> None:
    """Compile ONNX models with rknn-toolkit2, and decode layouts by marker builds."""


@rknn.command("compile")
@click.argument("model", type=PATH)
@click.option(
    "--dataset", type=PATH, help="w8a8: a line of .npy files, one for each input, per sample. fp16 without it."
)
@click.option("--target", default=TARGET, show_default=True, help="The chip.")
@click.option("-o", "--output", required=True, type=PATH, help="The engine that is written.")
def compile_command(model: Path, dataset: Path | None, target: str, output: Path) -> None:
    """Compile MODEL (ONNX) to an engine; equal models give equal files."""
    samples = [] if dataset is None else _samples(dataset)
    compile_rknn([RknnModel(_load(model).SerializeToString(), output, samples)], target)


@rknn.command("decode")
@click.argument("engine", type=PATH)
@click.option("--checkpoint", required=True, type=PATH, help="The ONNX model that ENGINE was compiled from.")
@click.option("--target", default=TARGET, show_default=True, help="The chip.")
@click.option("-o", "--output", required=True, type=PATH, help="The layout.")
def decode_command(engine: Path, checkpoint: Path, target: str, output: Path) -> None:
    """Find where every weight lives by marker builds, fp16 or w8a8, and confirm it on ENGINE."""
    layout = decode_rknn(_load(checkpoint), engine, target)
    write_layout(output, layout)
    for stored in layout.tensors:
        click.echo(f"{stored.name}  {list(stored.source_shape)}  {stored.codec}")


def _load(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        raise MissingFileError("no such model", file=path)
    try:
        return onnx.load(path)
    except (DecodeError, onnx.checker.ValidationError, ValueError) as error:
        raise CheckpointError(f"not an ONNX model: {str(error).splitlines()[0]}", file=path) from None


def _samples(dataset: Path) -> list[Inputs]:
    """The arrays that a dataset file names, relative to its own directory. Raises MissingFileError, CheckpointError."""
    if not dataset.is_file():
        raise MissingFileError("no such file", file=dataset)
    lines = [line.split() for line in dataset.read_text().splitlines() if line.strip()]
    if not lines:
        raise CheckpointError("no samples", file=dataset)
    return [[_array(dataset.parent / name) for name in line] for line in lines]


def _array(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if not path.is_file():
        raise MissingFileError("no such sample", file=path)
    try:
        return np.asarray(np.load(path, allow_pickle=False), np.float32)
    except (ValueError, EOFError) as error:
        raise CheckpointError(f"not an array: {error}", file=path) from None
