"""A fine-tune that int8 engines with old scales cannot hold: a low-rank change that raises maxima of rows up to three times."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.checkpoint.open import open_checkpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.slots import model_slots
from tests.helpers.adapters import Factors, write_gguf_adapter

MODULES = ("gate_proj", "up_proj")
RANK, SHARE, MOST = 2, 0.1, 3.0


def write_fine_tune(source: Path, path: Path) -> Path:
    """A LoRA adapter for the model in `source`, seeded; alpha equals the rank, so that the change is added as it is."""
    checkpoint = open_checkpoint(source)
    return write_gguf_adapter(path, checkpoint.config, raised_maxima(checkpoint), alpha=float(RANK))


def raised_maxima(checkpoint: Checkpoint, seed: int = 1) -> Factors:
    """HF name -> (up, down): for each rank one element of a tenth of the rows becomes 1 to `MOST` times the row's largest."""
    rng = np.random.default_rng(seed)
    factors: Factors = {}
    for slot in model_slots(checkpoint.config):
        if slot.name.removesuffix(".weight").rpartition(".")[2] in MODULES:
            rows, cols = slot.shape
            values, columns = checkpoint.read(slot.name), rng.choice(cols, RANK, replace=False)
            most = np.abs(values).max(axis=1, keepdims=True)
            wanted = most * rng.uniform(1, MOST, (rows, RANK)) * rng.choice([-1, 1], (rows, RANK))
            up = np.where(rng.random((rows, RANK)) < SHARE, wanted - values[:, columns], 0).astype(np.float32)
            down = np.zeros((RANK, cols), np.float32)
            down[np.arange(RANK), columns] = 1
            factors[slot.name] = up, down
    return factors
