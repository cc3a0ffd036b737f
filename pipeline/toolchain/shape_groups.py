"""The shape groups of an engine: inputs, outputs and microcode of the decode call and of the prefill ladder."""

from __future__ import annotations

from pipeline.axmodel.walk import EngineIo
from pipeline.model import ModelConfig
from pipeline.toolchain.container import Group
from pipeline.toolchain.kinds import LAYER
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.placed import MemoryMap
from pipeline.toolchain.program import layer_program, post_program


def engine_groups(
    config: ModelConfig, options: CompileOptions, kind: str, memory: MemoryMap, layer: int
) -> list[Group]:
    """Decode first, then prefill by ascending prefix; one group for the post engine."""
    decode = {name: placed.operand(prefill=False) for name, placed in memory.placed.items()}
    if kind != LAYER:
        hidden = EngineIo("input", "BF16", (1, 1, config.hidden_size))
        logits = EngineIo("output", "BF16", (1, 1, config.head_rows))
        return [Group((hidden,), (logits,), post_program(config, decode).encode())]
    prefill = {name: placed.operand(prefill=True) for name, placed in memory.placed.items()}
    calls = [(decode, 1, options.kv_cache_len)]
    calls += [(prefill, options.prefill_len, prefix) for prefix in options.ladder()]
    return [
        Group(
            _inputs(config, tokens, history),
            _outputs(config, tokens),
            layer_program(config, operands, layer, tokens, history).encode(),
        )
        for operands, tokens, history in calls
    ]


def _inputs(config: ModelConfig, tokens: int, history: int) -> tuple[EngineIo, ...]:
    cache = (1, max(history, 1), config.kv_width)
    return (
        EngineIo("K_cache", "BF16", cache),
        EngineIo("V_cache", "BF16", cache),
        EngineIo("indices", "U32", (1, tokens)),
        EngineIo("input", "BF16", (1, tokens, config.hidden_size)),
        EngineIo("mask", "BF16", (1, tokens, history + tokens)),
    )


def _outputs(config: ModelConfig, tokens: int) -> tuple[EngineIo, ...]:
    return (
        EngineIo("K_cache_out", "BF16", (1, tokens, config.kv_width)),
        EngineIo("V_cache_out", "BF16", (1, tokens, config.kv_width)),
        EngineIo("output", "BF16", (1, tokens, config.hidden_size)),
    )
