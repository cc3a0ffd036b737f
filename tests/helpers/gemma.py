"""A tiny gemma3 and its whole forward pass in NumPy, to the bit (docs/numerics.md): no chunks, no caches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.model import FULL, SLIDING, ModelConfig
from tests.helpers import numerics
from tests.helpers.numerics import Float32, bf16_bits, round_bf16
from tests.helpers.tiny import tiny_config

OFF = np.float32(-65536)


def tiny_gemma(window: int, types: Sequence[str] = (SLIDING, FULL, SLIDING), **overrides: Any) -> ModelConfig:
    sizes = {
        "hidden_size": 96,
        "intermediate_size": 200,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "vocab_size": 300,
        "num_hidden_layers": len(types),
        "layer_types": tuple(types),
        "sliding_window": window,
        "rope_theta": 1e6,
        "rope_local_theta": 1e4,
        "eos_token_ids": (),
    }
    return tiny_config("gemma3", **(sizes | overrides))


def forward(config: ModelConfig, read: Callable[[str], Float32], tokens: Sequence[int]) -> npt.NDArray[np.uint16]:
    """Logits of every position, bf16 bits `[n, rows of the head]`; `read` gives weights by their HF names."""
    scale = np.sqrt(np.float32(config.hidden_size))
    hidden = round_bf16(read("model.embed_tokens.weight")[list(tokens)] * scale)
    for layer in range(config.num_hidden_layers):
        hidden = round_bf16(_layer(config, read, layer, hidden))
    normed = numerics.norm(hidden, round_bf16(read("model.norm.weight")), config.rms_norm_eps)
    return bf16_bits(numerics.matmul(normed, round_bf16(read("lm_head.weight"))))


def window_mask(count: int, window: int) -> Float32:
    """0 where token p sees p0: p0 <= p and p - p0 < window."""
    back = np.arange(count)[:, None] - np.arange(count)[None, :]
    return np.where((back >= 0) & (back < window), np.float32(0), OFF)


def _layer(config: ModelConfig, read: Callable[[str], Float32], layer: int, hidden: Float32) -> Float32:
    def weight(name: str) -> Float32:
        return round_bf16(read(f"model.layers.{layer}.{name}.weight"))

    def norm(x: Float32, name: str) -> Float32:
        return numerics.norm(x, weight(name), config.rms_norm_eps)

    def project(x: Float32, name: str) -> Float32:
        return numerics.matmul(x, weight(name))

    sliding = config.layer_types[layer] == SLIDING
    normed = norm(hidden, "input_layernorm")
    q, k, v = (project(normed, f"self_attn.{which}_proj") for which in "qkv")
    tables = _rope_tables(config.rope_local_theta if sliding else config.rope_theta, len(hidden), config.head_dim)
    indices = np.arange(len(hidden), dtype=np.uint32)
    q, k = (
        numerics.rope(norm(x, f"self_attn.{name}_norm"), indices, *tables, config.head_dim)
        for x, name in ((q, "q"), (k, "k"))
    )
    mask = window_mask(len(hidden), config.sliding_window if sliding else len(hidden))
    heads = (config.num_attention_heads, config.num_key_value_heads)
    scale = np.float32(1 / math.sqrt(config.head_dim))
    mixed = numerics.attend(round_bf16(q), round_bf16(k), round_bf16(v), mask, *heads, scale)
    hidden = hidden + norm(project(mixed, "self_attn.o_proj"), "post_attention_layernorm")
    normed = norm(hidden, "pre_feedforward_layernorm")
    inner = numerics.glu(project(normed, "mlp.gate_proj"), project(normed, "mlp.up_proj"), "gelu_tanh")
    return hidden + norm(project(inner, "mlp.down_proj"), "post_feedforward_layernorm")


def _rope_tables(theta: float, positions: int, head_dim: int) -> tuple[Float32, Float32]:
    angles = [[p * theta ** (-2 * i / head_dim) for i in range(head_dim // 2)] for p in range(positions)]
    cosine, sine = (np.array([[f(a) for a in row] for row in angles], np.float32) for f in (math.cos, math.sin))
    return cosine, sine
