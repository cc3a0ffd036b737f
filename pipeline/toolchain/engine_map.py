"""What each kind of engine holds, and where: weights by the architecture's table, RoPE tables, norms that are folded away."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from layouts.codecs import Float32
from pipeline.model import ModelConfig, TensorSpec, architecture_of
from pipeline.toolchain.kinds import LAYER
from pipeline.toolchain.memory_map import draw_map
from pipeline.toolchain.options import INTEGERS, CompileOptions
from pipeline.toolchain.placed import Item, MemoryMap
from pipeline.toolchain.program import ROPE_COS, ROPE_SIN

TABLE_CODEC = "fp32"


def engine_map(config: ModelConfig, options: CompileOptions, kind: str) -> MemoryMap:
    """The map of a layer or of the post engine; the same for every layer."""
    items = [_item(config, options, kind, spec) for spec in engine_specs(config, kind)]
    if kind == LAYER:
        table = (options.positions(), config.head_dim // 2)
        items += [Item(name, table, TABLE_CODEC, constant=True) for name in (ROPE_COS, ROPE_SIN)]
    return draw_map(items, options.layout_seed, kind, options.prefill_share if kind == LAYER else 0.0)


def engine_specs(config: ModelConfig, kind: str) -> tuple[TensorSpec, ...]:
    """The architecture's tensors of a layer or of the post engine."""
    architecture = architecture_of(config)
    return architecture.layer if kind == LAYER else architecture.post()


def folded_norms(config: ModelConfig, options: CompileOptions, kind: str) -> dict[str, str]:
    """Projection -> the norm that is folded into it; empty where none is."""
    if not options.folds(kind):
        return {}
    norms = {spec.name: architecture_of(config).folded_norm(spec.name) for spec in engine_specs(config, kind)}
    return {projection: norm for projection, norm in norms.items() if norm}


def engine_constants(config: ModelConfig, options: CompileOptions, kind: str, layer: int) -> dict[str, Float32]:
    """Values of the items that are no weights, `[rows, cols]`."""
    folded = set(folded_norms(config, options, kind).values())
    ones = {
        spec.name: np.ones((1, *spec.shape(config)), np.float32)
        for spec in engine_specs(config, kind)
        if spec.name in folded
    }
    if kind != LAYER:
        return ones
    return ones | rope_tables(config.theta(layer), config.head_dim, options.positions())


@lru_cache(maxsize=4)
def rope_tables(theta: float, head_dim: int, positions: int) -> dict[str, Float32]:
    """cos and sin of position * theta^(-2i/d), `[positions, head_dim / 2]` each, rounded once to float32."""
    half = head_dim // 2
    steps = [theta ** (-i / half) for i in range(half)]
    angles = [position * step for position in range(positions) for step in steps]
    return {
        name: np.fromiter(map(function, angles), np.float64, len(angles)).astype(np.float32).reshape(positions, half)
        for name, function in ((ROPE_COS, math.cos), (ROPE_SIN, math.sin))
    }


def _item(config: ModelConfig, options: CompileOptions, kind: str, spec: TensorSpec) -> Item:
    folded = folded_norms(config, options, kind)
    shape = spec.shape(config)
    weight_type = options.weight_type if kind == LAYER else options.post_type
    if len(shape) == 2 and weight_type in INTEGERS:
        scales = options.scales(weight_type)
        return Item(spec.name, (shape[0], shape[1]), weight_type, scales, folded.get(spec.name, ""))
    grid = (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])
    return Item(spec.name, grid, _float_codec(options, weight_type), constant=spec.name in folded.values())


def _float_codec(options: CompileOptions, weight_type: str) -> str:
    """Vectors of integer engines are bf16."""
    if weight_type in INTEGERS:
        return "bf16"
    return "bf16_truncated" if options.rounding == "truncate" else weight_type
