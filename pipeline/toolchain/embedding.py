"""The embedding file: rows of bf16, one behind the other, as the published runtime maps it."""

from __future__ import annotations

from layouts.algebra import Digit, Layout, Piece
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.model import EMBEDDING, ModelConfig
from pipeline.toolchain.kinds import EMBEDDING_ENGINE

BLOB = "embedding"


def embedding_layout(config: ModelConfig) -> EngineLayout:
    """The layout of the whole file."""
    rows, cols = config.vocab_size, config.hidden_size
    layout = Layout((rows, cols), 0, (Digit(rows, 16 * cols),), (Digit(cols, 16),), 16)
    stored = StoredTensor(EMBEDDING.name, (rows, cols), "bf16", (Copy("decode", (Plane((Piece(0, 0, layout),)),)),))
    return EngineLayout(EMBEDDING_ENGINE, BLOB, 2 * rows * cols, (stored,))
