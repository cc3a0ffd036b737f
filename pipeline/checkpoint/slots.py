"""Every tensor that a model has: its Hugging Face name, its GGUF name and its shape."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from pipeline.checkpoint.source_file import CheckpointWarning
from pipeline.errors import CheckpointError
from pipeline.model import EMBEDDING, FULL, HEAD, SLIDING, ModelConfig, TensorSpec, architecture_of

# that are listed one by one before anything shows that the source has them
MAX_LAYERS = 1 << 16


@dataclass(frozen=True)
class Slot:
    """The place of one tensor. `shape` is rows first; vectors have one dimension."""

    name: str
    gguf: str
    shape: tuple[int, ...]
    spec: TensorSpec


def model_slots(config: ModelConfig) -> tuple[Slot, ...]:
    """Embedding, layers, final norm, head: all that the architecture has, `lm_head.weight` included when tied."""
    layers = [
        Slot(spec.hf_name(layer), spec.gguf_name(layer), spec.shape(config), spec)
        for layer in range(config.num_hidden_layers)
        for spec in architecture_of(config).layer
    ]
    outer = [
        Slot(spec.name, spec.gguf, spec.shape(config), spec) for spec in (EMBEDDING, *architecture_of(config).post())
    ]
    return (outer[0], *layers, *outer[1:])


def stored_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """HF name -> shape of what a checkpoint of this model stores: with tied embeddings no `lm_head.weight`."""
    left_out = HEAD.name if config.tie_word_embeddings else None
    return {slot.name: slot.shape for slot in model_slots(config) if slot.name != left_out}


def plus_one_names(config: ModelConfig) -> set[str]:
    """HF names of the norms that a Hugging Face directory of this model stores as gain - 1."""
    return {slot.name for slot in model_slots(config) if slot.spec.plus_one}


def every_nth_full(period: int, layers: int) -> tuple[str, ...]:
    """Layer types where every `period`-th layer attends to everything, the first such being layer `period - 1`."""
    return tuple(FULL if layer % period == period - 1 else SLIDING for layer in range(layers))


def check_heads(config: ModelConfig, file: Path) -> None:
    """Refuses key/value heads that do not divide the heads, and an odd head_dim, which RoPE cannot pair."""
    if config.num_attention_heads % config.num_key_value_heads:
        found = f"{config.num_attention_heads} heads, {config.num_key_value_heads} key/value heads"
        raise CheckpointError(
            "heads do not divide", file=file, where="num_key_value_heads", expected="a divisor", found=found
        )
    if config.head_dim % 2:
        raise CheckpointError("odd head_dim", file=file, where="head_dim", expected="even", found=config.head_dim)


def inside_vocabulary(token: int, vocab: int, file: Path, key: str) -> bool:
    """Whether a special token's id has a row; warns where it has none."""
    inside = 0 <= token < vocab
    if not inside:
        text = f"{file}: {key}: token id {token} is ignored, the vocabulary has {vocab} tokens"
        warnings.warn(text, CheckpointWarning, stacklevel=2)
    return inside
