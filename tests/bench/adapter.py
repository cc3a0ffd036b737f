"""Merging a LoRA adapter while weights are read."""

from __future__ import annotations

import numpy as np

from pipeline.checkpoint.lora import merge_adapter
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.slots import model_slots
from tests.bench.measure import Row, median_seconds
from tests.bench.workspace import Workspace
from tests.helpers.integer_sets import write_adapter_gguf

RANK = 16


def measure(workspace: Workspace) -> list[Row]:
    """Every projection of every layer, read with an adapter and without."""
    base, random = workspace.job.checkpoint, np.random.default_rng(1)
    shapes = {slot.name: slot.shape for slot in model_slots(base.config) if "proj" in slot.name}
    factors = {
        name: (random.standard_normal((RANK, cols), np.float32), random.standard_normal((rows, RANK), np.float32))
        for name, (rows, cols) in shapes.items()
    }
    path = write_adapter_gguf(workspace.folder / "adapter.gguf", base.config, factors, RANK)
    merged = merge_adapter(base, path, 1.0)
    elements = sum(rows * cols for rows, cols in shapes.values())
    ours, plain = (elements / _seconds(checkpoint, list(shapes)) for checkpoint in (merged, base))
    name = f"read with an adapter of rank {RANK} merged"
    return [Row(name, ours, "elements/s", {"read without it": plain}, better="higher")]


def _seconds(checkpoint: Checkpoint, names: list[str]) -> float:
    return median_seconds(lambda: [checkpoint.read(name).shape for name in names])
