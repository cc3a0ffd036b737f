"""The operations of a decoder layer and of the post engine, as microcode programs.

What an architecture has (biases, norms and where they stand, activation) is read from its row of the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pipeline.model import HEAD, ModelConfig, architecture_of
from pipeline.toolchain.microcode import ACTIVATION_IDS, KIND_LAYER, KIND_POST, NO_TENSOR, Operand, Program, float_bits

ROPE_COS, ROPE_SIN = "rope.cos", "rope.sin"

# io order inside the containers (docs/container.md)
K_CACHE, V_CACHE, INDICES, INPUT, MASK = range(5)
K_CACHE_OUT, V_CACHE_OUT, OUTPUT = range(3)


class _LayerWriter:
    def __init__(self, config: ModelConfig, operands: Mapping[str, Operand], program: Program) -> None:
        self.config, self.operands, self.program = config, operands, program
        self.architecture = architecture_of(config)

    def tensor(self, name: str) -> int:
        return self.program.tensor(self.operands[name])

    def norm(self, source: int, name: str, width: int, group: int) -> int:
        result = self.program.register(width)
        eps = float_bits(self.config.rms_norm_eps)
        self.program.emit("NORM", source, result, self.tensor(name), eps, group)
        return result

    def project(self, source: int, stem: str) -> int:
        """`stem`.weight, and `stem`.bias where the architecture has one."""
        result = self.program.register(self.operands[f"{stem}.weight"].shape[0])
        bias = self.tensor(f"{stem}.bias") if self.architecture.has(f"{stem}.bias") else NO_TENSOR
        self.program.emit("MATMUL", source, result, self.tensor(f"{stem}.weight"), bias)
        return result

    def add(self, a: int, b: int, width: int) -> int:
        result = self.program.register(width)
        self.program.emit("ADD", a, b, result)
        return result

    def attention(self, normed: int) -> int:
        config, emit = self.config, self.program.emit
        q, k, v = (self.project(normed, f"self_attn.{which}_proj") for which in "qkv")
        if self.architecture.has("self_attn.q_norm.weight"):
            q = self.norm(q, "self_attn.q_norm.weight", config.q_width, config.head_dim)
            k = self.norm(k, "self_attn.k_norm.weight", config.kv_width, config.head_dim)
        cos, sin = self.tensor(ROPE_COS), self.tensor(ROPE_SIN)
        for register in (q, k):
            emit("ROPE", register, INDICES, cos, sin, config.head_dim)
        for register in (q, k, v):
            emit("ROUND", register)
        mixed = self.program.register(config.q_width)
        heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        emit("ATTEND", q, k, v, mixed, K_CACHE, V_CACHE, MASK, *heads, float_bits(1 / math.sqrt(config.head_dim)))
        emit("STORE", k, K_CACHE_OUT)
        emit("STORE", v, V_CACHE_OUT)
        return self.project(mixed, "self_attn.o_proj")

    def feed_forward(self, normed: int) -> int:
        gate, up = self.project(normed, "mlp.gate_proj"), self.project(normed, "mlp.up_proj")
        hidden = self.program.register(self.config.intermediate_size)
        self.program.emit("GLU", gate, up, hidden, ACTIVATION_IDS[self.architecture.activation])
        return self.project(hidden, "mlp.down_proj")

    def half(self, hidden: int, before: str, inner: Callable[[int], int], after: str) -> int:
        """One half of a layer: norm, `inner`, the norm behind it if there is one ("" for none), and the sum."""
        width = self.config.hidden_size
        result = inner(self.norm(hidden, before, width, width))
        if after:
            result = self.norm(result, after, width, width)
        return self.add(hidden, result, width)

    def write(self) -> None:
        norms = self.architecture.norms
        hidden = self.program.register(self.config.hidden_size)
        self.program.emit("LOAD", hidden, INPUT)
        hidden = self.half(hidden, norms.attention, self.attention, norms.after_attention)
        hidden = self.half(hidden, norms.feed_forward, self.feed_forward, norms.after_feed_forward)
        self.program.emit("STORE", hidden, OUTPUT)


def layer_program(
    config: ModelConfig, operands: Mapping[str, Operand], layer: int, tokens: int, history: int
) -> Program:
    """One layer for `tokens` tokens a call and `history` rows of cache."""
    program = Program(KIND_LAYER, layer, tokens, history)
    _LayerWriter(config, operands, program).write()
    return program


def post_program(config: ModelConfig, operands: Mapping[str, Operand]) -> Program:
    """Final norm and head for one token: input io 0 to output io 0."""
    program = Program(KIND_POST, 0, 1, 0)
    writer = _LayerWriter(config, operands, program)
    hidden = program.register(config.hidden_size)
    program.emit("LOAD", hidden, 0)
    normed = writer.norm(hidden, writer.architecture.final_norm.name, config.hidden_size, config.hidden_size)
    program.emit("STORE", writer.project(normed, HEAD.name.removesuffix(".weight")), 0)
    return program
