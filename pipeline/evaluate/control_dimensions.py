"""What the control knows of a model besides its weights, from the metadata of a GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.errors import CheckpointError

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
INTERLEAVED_ROPE = ("llama",)
SCALED_EMBEDDING = GELU = SLIDING = ("gemma3",)
ROPE_BASE = 10000.0
SLIDING_PERIOD = 6  # every sixth layer attends to everything, where the GGUF does not say otherwise


class Dimensions:
    """Sizes and constants.

    Parameters
    ----------
    path : for error lines
    fields : of a `GGUFReader`

    Raises CheckpointError for another architecture and for a key that is absent.
    """

    def __init__(self, path: Path, fields: dict[str, Any]) -> None:
        self.path, self._fields = path, fields
        own = self.architecture = str(self._key("general.architecture"))
        if own not in ARCHITECTURES:
            raise CheckpointError("architecture", file=path, expected=", ".join(ARCHITECTURES), found=own)
        self.interleaved, self.gelu = own in INTERLEAVED_ROPE, own in GELU
        self.scaled_embedding = own in SCALED_EMBEDDING
        self.hidden = int(self._key(f"{own}.embedding_length"))
        self.layers = int(self._key(f"{own}.block_count"))
        self.heads = int(self._key(f"{own}.attention.head_count"))
        self.kv_heads = int(self._key(f"{own}.attention.head_count_kv", self.heads))
        self.head_dim = int(self._key(f"{own}.attention.key_length", self.hidden // self.heads))
        self.eps = float(self._key(f"{own}.attention.layer_norm_rms_epsilon"))
        self.rope_base = float(self._key(f"{own}.rope.freq_base", ROPE_BASE))
        self.sliding_rope_base = float(self._key(f"{own}.rope.freq_base_swa", ROPE_BASE))
        self.sliding_window = int(self._key(f"{own}.attention.sliding_window")) if own in SLIDING else 0
        self._pattern = self._key(f"{own}.attention.sliding_window_pattern", SLIDING_PERIOD)

    def _key(self, name: str, default: object = None) -> Any:
        if name in self._fields:
            return self._fields[name].contents()
        if default is None:
            raise CheckpointError("metadata key is absent", file=self.path, where=name)
        return default

    def window(self, layer: int) -> int:
        """How many tokens a layer sees, its own included; 0 for all."""
        if isinstance(self._pattern, list):
            return self.sliding_window if self._pattern[layer] else 0
        return self.sliding_window if (layer + 1) % self._pattern else 0
