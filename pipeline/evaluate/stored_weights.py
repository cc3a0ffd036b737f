"""Weights as a set holds them, through its own sidecars, beside those that the control computes with: bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout, StoredTensor
from layouts.view import read_tensor
from pipeline.container.blob import read_blob
from pipeline.engineset.manifest import read_manifest
from pipeline.engineset.names import layout_file
from pipeline.model import EMBEDDING, ModelConfig, TensorSpec, architecture_of
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE

Array = npt.NDArray[Any]
Weight = Callable[[str], Array]

ELEMENTS_AT_A_TIME = 1 << 22


@dataclass(frozen=True)
class WeightCheck:
    """equal, total : tensors; first : the first one that differs, with copy, row and column, "" where none does."""

    equal: int
    total: int
    first: str = ""


def compare_weights(directory: Path, weight: Weight) -> WeightCheck:
    """Compare every copy of every tensor of a set.

    Parameters
    ----------
    directory : the set
    weight : what a tensor is under its GGUF name, `[rows, cols]` or `[n]` in the GGUF's order of rows

    Raises VerifyError, LayoutError, AxmodelError, SidecarError for a set that cannot be read.
    """
    manifest, faults, total = read_manifest(directory), list[str](), 0
    config = manifest.model
    for kind, layer, specs in _engines(config):
        path = directory / manifest.names.file(kind, layer)
        blob, layout = read_blob(path), read_layout(directory / layout_file(kind))
        for stored, spec in _stored(layout, specs):
            name = spec.gguf_name(layer) if kind == LAYER else spec.gguf
            fault = _difference(blob, stored, _rows_in_order(weight(name), spec, config))
            faults += [f"{path.name}: {stored.name}: {fault}"] if fault else []
            total += 1
    return WeightCheck(total - len(faults), total, next(iter(faults), ""))


def _engines(config: ModelConfig) -> Iterator[tuple[str, int, tuple[TensorSpec, ...]]]:
    architecture = architecture_of(config)
    for layer in range(config.num_hidden_layers):
        yield LAYER, layer, architecture.layer
    yield POST_ENGINE, 0, architecture.post()
    yield EMBEDDING_ENGINE, 0, (EMBEDDING,)


def _stored(layout: EngineLayout, specs: tuple[TensorSpec, ...]) -> Iterator[tuple[StoredTensor, TensorSpec]]:
    """Tensors that the engine holds: all but norms that are folded into others."""
    by_name = {spec.name: spec for spec in specs}
    for stored in layout.tensors:
        yield stored, by_name[stored.name]


def _rows_in_order(values: Array, spec: TensorSpec, config: ModelConfig) -> Array:
    """Rows as engines have them: the halves of each head one after the other."""
    if values.ndim == 1:
        return values[None]
    if spec.permuted is None:
        return values
    pairs = values.reshape(-1, config.head_dim // 2, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _difference(blob: Array, stored: StoredTensor, expected: Array) -> str:
    if stored.shape != expected.shape:
        return f"shape {list(stored.shape)}, the control has {list(expected.shape)}"
    step = max(1, ELEMENTS_AT_A_TIME // stored.shape[1])
    for copy in stored.copies:
        for start, stop in copy.rows:
            for first in range(start, stop, step):
                rows = slice(first, min(first + step, stop))
                found = read_tensor(blob, stored, copy.name, rows)
                wanted = expected[rows].astype(np.float32)
                unequal = found.view(np.uint32) != wanted.view(np.uint32)
                if unequal.any():
                    row, col = (int(i) for i in np.unravel_index(int(unequal.argmax()), unequal.shape))
                    values = f"{found[row, col]!s}, the control has {wanted[row, col]!s}"
                    return f"copy {copy.name}, row {first + row}, column {col}: {values}"
    return ""
