"""Small whole-layer engines from the reference compiler, their inputs, and the same layer in NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.model import ModelConfig
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import ReferenceCompiler
from tests.helpers import numerics
from tests.helpers.numerics import Float32, bf16_bits, bf16_floats, round_bf16
from tests.helpers.simulator import Call, Card

Inputs = dict[str, npt.NDArray[np.unsignedinteger]]
OFF = -65536.0
# dimensions of a model that compiles and runs in a moment
SMALL = {
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
}


@dataclass(frozen=True)
class LayerEngine:
    """One layer compiled for a decode call and for chunks of `chunk` tokens at every multiple of it."""

    path: Path
    config: ModelConfig
    weights: dict[str, Float32]
    rows: int
    chunk: int

    def groups(self) -> list[tuple[int, int]]:
        """(tokens, history) of every shape group."""
        return [(1, self.rows), *((self.chunk, prefix) for prefix in range(0, self.rows - self.chunk + 1, self.chunk))]

    def expected(self, inputs: Inputs) -> dict[str, npt.NDArray[np.uint16]]:
        return _forward(self, inputs)


def compile_layer(directory: Path, config: ModelConfig, rows: int = 160, chunk: int = 64, seed: int = 3) -> LayerEngine:
    source = NoiseCheckpoint(config, seed)
    options = CompileOptions(kv_cache_len=rows, prefill_len=chunk, layout_seed=seed)
    path = ReferenceCompiler(source, directory, options).compile_layer(0)
    prefix = "model.layers.0."
    weights = {
        name.removeprefix(prefix): round_bf16(source.read(name)) for name in source.names() if name.startswith(prefix)
    }
    return LayerEngine(path, config, weights, rows, chunk)


def layer_inputs(engine: LayerEngine, tokens: int, history: int, filled: int, seed: int = 0) -> Inputs:
    """Random inputs of one call after `filled` tokens: causal mask, cache rows beyond `filled` zero."""
    rng, config = np.random.default_rng(seed), engine.config
    caches = bf16_bits(rng.standard_normal((2, max(history, 1), config.kv_width)).astype(np.float32))
    caches[:, filled:] = 0
    mask = np.zeros((tokens, history + tokens), np.float32)
    mask[:, filled:history] = OFF
    mask[:, history:][np.triu_indices(tokens, 1)] = OFF
    hidden = bf16_bits(rng.standard_normal((tokens, config.hidden_size)).astype(np.float32))
    indices = np.arange(filled, filled + tokens, dtype=np.uint32)
    return {"K_cache": caches[0], "V_cache": caches[1], "indices": indices, "input": hidden, "mask": bf16_bits(mask)}


def bound_call(card: Card, engine: LayerEngine, group: int = 0, filled: int = 20) -> Call:
    """A call of `group` on random inputs, loaded and bound."""
    tokens, history = engine.groups()[group]
    return Call(card.load(engine.path), group, layer_inputs(engine, tokens, history, min(history, filled)))


def rope_table(config: ModelConfig, positions: int) -> tuple[Float32, Float32]:
    half = config.head_dim // 2
    angles = [[p * config.rope_theta ** (-i / half) for i in range(half)] for p in range(positions)]
    tables = [[[function(angle) for angle in row] for row in angles] for function in (math.cos, math.sin)]
    return np.array(tables[0], np.float32), np.array(tables[1], np.float32)


def _forward(engine: LayerEngine, inputs: Inputs) -> dict[str, npt.NDArray[np.uint16]]:
    config, weights = engine.config, engine.weights
    real = {name: bf16_floats(inputs[name].astype(np.uint16)) for name in ("K_cache", "V_cache", "input", "mask")}
    hidden = real["input"]
    normed = numerics.norm(hidden, weights["input_layernorm.weight"], config.rms_norm_eps)
    q, k, v = (_project(weights, normed, f"self_attn.{which}_proj") for which in "qkv")
    if "self_attn.q_norm.weight" in weights:
        q = numerics.norm(q, weights["self_attn.q_norm.weight"], config.rms_norm_eps)
        k = numerics.norm(k, weights["self_attn.k_norm.weight"], config.rms_norm_eps)
    tables = rope_table(config, engine.rows + 1)
    indices = inputs["indices"].astype(np.uint32)
    q, k = (numerics.rope(x, indices, *tables, config.head_dim) for x in (q, k))
    q, k, v = round_bf16(q), round_bf16(k), round_bf16(v)
    history = real["mask"].shape[1] - len(hidden)
    columns = [np.concatenate([real[f"{name}_cache"][:history], rows]) for name, rows in (("K", k), ("V", v))]
    scale = np.float32(1 / math.sqrt(config.head_dim))
    mixed = numerics.attend(q, *columns, real["mask"], config.num_attention_heads, config.num_key_value_heads, scale)
    hidden = hidden + _project(weights, mixed, "self_attn.o_proj")
    normed = numerics.norm(hidden, weights["post_attention_layernorm.weight"], config.rms_norm_eps)
    gate, up = _project(weights, normed, "mlp.gate_proj"), _project(weights, normed, "mlp.up_proj")
    hidden = hidden + _project(weights, numerics.glu(gate, up), "mlp.down_proj")
    return {"K_cache_out": bf16_bits(k), "V_cache_out": bf16_bits(v), "output": bf16_bits(hidden)}


def _project(weights: dict[str, Float32], x: Float32, stem: str) -> Float32:
    return numerics.matmul(x, weights[f"{stem}.weight"], weights.get(f"{stem}.bias"))
