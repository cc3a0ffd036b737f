"""What a w8a8 `.rknn` stores of each weight: all of it, or runs of columns with scales of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from layouts.decode_affine import Part
from pipeline.errors import ToolchainError
from pipeline.rknn.walk import RknnEngine, RknnOperator
from pipeline.toolchain.rknn_markers import Weight

_RUN = re.compile(r"(?P<node>.*)_tile(?P<index>\d+)_i1")
_COPY = re.compile(r"#\d+$")


@dataclass(frozen=True)
class Run:
    """Columns of a weight, the activation that they are multiplied with, and the bias that is added there, "" for none.

    constants : the engine's constants that hold them and what stands beside them
    """

    part: Part
    input: str
    bias: str
    constants: tuple[str, ...]


def weight_runs(engine: RknnEngine, weights: Sequence[Weight]) -> list[Run]:
    """The runs of every weight, in the order of its columns. Raises ToolchainError where they do not make up the weight."""
    return [run for weight in weights for run in _runs(engine, weight)]


def _runs(engine: RknnEngine, weight: Weight) -> Iterator[Run]:
    """A weight that is cut is named after its node: `NODE_tile0_i1`, `NODE_tile1_i1` ... (docs/rknn-file.md)."""
    readers = {operator.inputs[1]: operator for operator in engine.operators if len(operator.inputs) > 1}
    if weight.name in readers:
        yield _run(Part(weight.name, weight.name, 0, weight.shape[1]), readers[weight.name], weight)
        return
    shapes = {tensor.name: tensor.shape for tensor in engine.constants()}
    found: dict[int, tuple[str, int]] = {}
    for name in readers.keys() & shapes.keys():
        match = _RUN.fullmatch(name)
        if match and _COPY.sub("", match["node"]) in weight.nodes and shapes[name][0] == weight.shape[0]:
            found[int(match["index"])] = (name, shapes[name][1] * _spread(weight))
    first = 0
    for index, (name, columns) in sorted(found.items()):
        part = Part(f"{weight.name}/run{index}", weight.name, first, first + columns)
        yield _run(part, readers[name], weight)
        first += columns
    if first != weight.shape[1]:
        reason = "runs that do not make up the weight"
        raise ToolchainError(reason, file=engine.path, where=weight.name, expected=weight.shape[1], found=first)


def _spread(weight: Weight) -> int:
    """Columns for each input channel: the taps of a convolution."""
    return weight.shape[1] // weight.dims[weight.order[1]]


def _run(part: Part, operator: RknnOperator, weight: Weight) -> Run:
    biased = bool(weight.bias) and weight.bias in operator.inputs[2:]
    return Run(part, operator.inputs[0], weight.bias if biased else "", operator.inputs[1:3])
