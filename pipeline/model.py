"""What a decoder-only language model is to us: its dimensions, and one table of architectures.

Everything that differs between architectures is a row of `ARCHITECTURES`; no other module branches on a name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

Permutation = Literal["heads", "kv_heads"]

FULL, SLIDING = "full_attention", "sliding_attention"
LAYER_TYPES = (FULL, SLIDING)


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and constants of a model, in the words of a Hugging Face `config.json`.

    `rope_theta` is the RoPE base; `rms_norm_eps` the epsilon of every RMS norm. `eos_token_ids` may be empty.
    `layer_types` has one of `LAYER_TYPES` per layer, or nothing where all layers attend to everything; layers that slide see the
    last `sliding_window` tokens, themselves included, and have the RoPE base `rope_local_theta`. `kept_rows` is the number of
    rows of a head that is trimmed to a part of the vocabulary, 0 where it is not; such a head is not tied.
    """

    architecture: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    max_position_embeddings: int
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    layer_types: tuple[str, ...] = ()
    sliding_window: int = 0
    rope_local_theta: float = 0.0
    kept_rows: int = 0

    @property
    def head_rows(self) -> int:
        """Rows of the head: the vocabulary, or the part of it that is kept."""
        return self.kept_rows or self.vocab_size

    def layer_type(self, layer: int) -> str:
        """One of `LAYER_TYPES`."""
        return self.layer_types[layer] if self.layer_types else FULL

    def theta(self, layer: int) -> float:
        """The RoPE base of a layer."""
        return self.rope_local_theta if self.layer_type(layer) == SLIDING else self.rope_theta

    def single(self) -> ModelConfig:
        """The same model with one layer of each type that it has, in order of their first occurrence."""
        types = tuple(dict.fromkeys(self.layer_types))
        return replace(self, num_hidden_layers=max(1, len(types)), layer_types=types)

    @property
    def q_width(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_key_value_heads * self.head_dim

    def dim(self, name: str) -> int:
        """The value of a dimension named in `TensorSpec.dims`."""
        return int(getattr(self, name))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def shape_key(self) -> dict[str, Any]:
        """What an engine is compiled for: every field but the names of tokens and the tie of the embedding."""
        ignored = {"bos_token_id", "eos_token_ids", "tie_word_embeddings", "max_position_embeddings"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ignored}


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a layer, of the head or of the embedding.

    name : what engines and sidecars call it: the HF name without `model.layers.{l}.`
    gguf : the GGUF name without `blk.{l}.`
    dims : names of `ModelConfig` dimensions, rows first
    permuted : the GGUF stores the rows of each head of this kind interleaved (llama's converter does)
    plus_one : a Hugging Face directory stores the gain minus 1; GGUFs and engines hold the gain itself, and so does a
        `Checkpoint`
    """

    name: str
    gguf: str
    dims: tuple[str, ...]
    permuted: Permutation | None = None
    plus_one: bool = False

    def shape(self, config: ModelConfig) -> tuple[int, ...]:
        return tuple(config.dim(d) for d in self.dims)

    def hf_name(self, layer: int) -> str:
        return f"model.layers.{layer}.{self.name}"

    def gguf_name(self, layer: int) -> str:
        return f"blk.{layer}.{self.gguf}"


EMBEDDING = TensorSpec("model.embed_tokens.weight", "token_embd.weight", ("vocab_size", "hidden_size"))
FINAL_NORM = TensorSpec("model.norm.weight", "output_norm.weight", ("hidden_size",))
HEAD = TensorSpec("lm_head.weight", "output.weight", ("head_rows", "hidden_size"))

_ATTENTION_INPUTS = tuple(f"self_attn.{which}_proj.weight" for which in "qkv")
_FEED_FORWARD_INPUTS = ("mlp.gate_proj.weight", "mlp.up_proj.weight")


@dataclass(frozen=True)
class NormRoles:
    """Which norm stands where in a layer: before each half, and after it ("" for none) before its result is added."""

    attention: str = "input_layernorm.weight"
    after_attention: str = ""
    feed_forward: str = "post_attention_layernorm.weight"
    after_feed_forward: str = ""


@dataclass(frozen=True)
class Architecture:
    """One row of the table. q/k norms and biases follow from the layer's tensors.

    final_norm : the spec of the norm before the head
    scaled_embedding : rows of the embedding file are multiplied by sqrt(hidden_size), the head is not
    full_every : every so many layers one attends to everything and the others slide, unless the source says which; 0: none slides
    hf_type : `model_type` in a `config.json`, where it is not `name`
    hf_defaults : what keys mean that a `config.json` leaves out, where it is not what they mean for others
    """

    name: str
    hf_class: str
    layer: tuple[TensorSpec, ...]
    activation: Literal["silu", "gelu_tanh"] = "silu"
    norms: NormRoles = NormRoles()
    final_norm: TensorSpec = FINAL_NORM
    scaled_embedding: bool = False
    full_every: int = 0
    hf_type: str = ""
    hf_defaults: tuple[tuple[str, Any], ...] = ()

    def has(self, tensor: str) -> bool:
        return any(spec.name == tensor for spec in self.layer)

    def post(self) -> tuple[TensorSpec, ...]:
        """The tensors of the post engine."""
        return (self.final_norm, HEAD)

    def folded_norm(self, tensor: str) -> str:
        """The norm whose gain a compiler may fold into this projection's columns, "" where there is none."""
        if tensor == HEAD.name:
            return self.final_norm.name
        if tensor in _ATTENTION_INPUTS:
            return self.norms.attention
        return self.norms.feed_forward if tensor in _FEED_FORWARD_INPUTS else ""

    def embedding_scale(self, config: ModelConfig) -> float:
        """The factor of the embedding file, a float32 as Python float."""
        return float(np.sqrt(np.float32(config.hidden_size))) if self.scaled_embedding else 1.0


def _projections(permuted: bool) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec(
            "self_attn.q_proj.weight", "attn_q.weight", ("q_width", "hidden_size"), "heads" if permuted else None
        ),
        TensorSpec(
            "self_attn.k_proj.weight", "attn_k.weight", ("kv_width", "hidden_size"), "kv_heads" if permuted else None
        ),
        TensorSpec("self_attn.v_proj.weight", "attn_v.weight", ("kv_width", "hidden_size")),
        TensorSpec("self_attn.o_proj.weight", "attn_output.weight", ("hidden_size", "q_width")),
        TensorSpec("mlp.gate_proj.weight", "ffn_gate.weight", ("intermediate_size", "hidden_size")),
        TensorSpec("mlp.up_proj.weight", "ffn_up.weight", ("intermediate_size", "hidden_size")),
        TensorSpec("mlp.down_proj.weight", "ffn_down.weight", ("hidden_size", "intermediate_size")),
    )


_NORMS = (
    TensorSpec("input_layernorm.weight", "attn_norm.weight", ("hidden_size",)),
    TensorSpec("post_attention_layernorm.weight", "ffn_norm.weight", ("hidden_size",)),
)
_QKV_BIASES = (
    TensorSpec("self_attn.q_proj.bias", "attn_q.bias", ("q_width",)),
    TensorSpec("self_attn.k_proj.bias", "attn_k.bias", ("kv_width",)),
    TensorSpec("self_attn.v_proj.bias", "attn_v.bias", ("kv_width",)),
)
_QK_NORMS = (
    TensorSpec("self_attn.q_norm.weight", "attn_q_norm.weight", ("head_dim",)),
    TensorSpec("self_attn.k_norm.weight", "attn_k_norm.weight", ("head_dim",)),
)

_GEMMA_NORMS = (
    TensorSpec("input_layernorm.weight", "attn_norm.weight", ("hidden_size",), plus_one=True),
    TensorSpec("post_attention_layernorm.weight", "post_attention_norm.weight", ("hidden_size",), plus_one=True),
    TensorSpec("pre_feedforward_layernorm.weight", "ffn_norm.weight", ("hidden_size",), plus_one=True),
    TensorSpec("post_feedforward_layernorm.weight", "post_ffw_norm.weight", ("hidden_size",), plus_one=True),
)
_GEMMA_ROLES = NormRoles(
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "pre_feedforward_layernorm.weight",
    "post_feedforward_layernorm.weight",
)
_GEMMA3 = Architecture(
    "gemma3",
    "Gemma3ForCausalLM",
    _projections(permuted=False) + _GEMMA_NORMS + tuple(replace(spec, plus_one=True) for spec in _QK_NORMS),
    activation="gelu_tanh",
    norms=_GEMMA_ROLES,
    final_norm=replace(FINAL_NORM, plus_one=True),
    scaled_embedding=True,
    full_every=6,
    hf_type="gemma3_text",
    hf_defaults=(
        ("head_dim", 256),
        ("hidden_activation", "gelu_pytorch_tanh"),
        ("max_position_embeddings", 131072),
        ("query_pre_attn_scalar", 256),
        ("rope_local_base_freq", 10000.0),
        ("rope_theta", 1000000.0),
        ("sliding_window", 4096),
        ("tie_word_embeddings", True),
    ),
)

ARCHITECTURES = {
    arch.name: arch
    for arch in (
        Architecture("llama", "LlamaForCausalLM", _projections(permuted=True) + _NORMS),
        Architecture("qwen2", "Qwen2ForCausalLM", _projections(permuted=False) + _NORMS + _QKV_BIASES),
        Architecture("qwen3", "Qwen3ForCausalLM", _projections(permuted=False) + _NORMS + _QK_NORMS),
        _GEMMA3,
    )
}


def architecture_of(config: ModelConfig) -> Architecture:
    return ARCHITECTURES[config.architecture]
