"""What a decoder-only language model is to us: its dimensions, and one table of architectures.

Everything that differs between architectures is a row of `ARCHITECTURES`; no other module branches on a name.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Permutation = Literal["heads", "kv_heads"]


@dataclass(frozen=True)
class ModelConfig:
    """Dimensions and constants of a model, in the words of a Hugging Face `config.json`.

    `rope_theta` is the RoPE base; `rms_norm_eps` the epsilon of every RMS norm. `eos_token_ids` may be empty.
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
    """

    name: str
    gguf: str
    dims: tuple[str, ...]
    permuted: Permutation | None = None

    def shape(self, config: ModelConfig) -> tuple[int, ...]:
        return tuple(config.dim(d) for d in self.dims)

    def hf_name(self, layer: int) -> str:
        return f"model.layers.{layer}.{self.name}"

    def gguf_name(self, layer: int) -> str:
        return f"blk.{layer}.{self.gguf}"


@dataclass(frozen=True)
class Architecture:
    """One row of the table. `qk_norm` and `qkv_bias` follow from the layer's tensors."""

    name: str
    hf_class: str
    layer: tuple[TensorSpec, ...]
    activation: Literal["silu"] = "silu"

    def has(self, tensor: str) -> bool:
        return any(spec.name == tensor for spec in self.layer)


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

EMBEDDING = TensorSpec("model.embed_tokens.weight", "token_embd.weight", ("vocab_size", "hidden_size"))
FINAL_NORM = TensorSpec("model.norm.weight", "output_norm.weight", ("hidden_size",))
HEAD = TensorSpec("lm_head.weight", "output.weight", ("vocab_size", "hidden_size"))
POST = (FINAL_NORM, HEAD)

ARCHITECTURES = {
    arch.name: arch
    for arch in (
        Architecture("llama", "LlamaForCausalLM", _projections(permuted=True) + _NORMS),
        Architecture("qwen2", "Qwen2ForCausalLM", _projections(permuted=False) + _NORMS + _QKV_BIASES),
        Architecture("qwen3", "Qwen3ForCausalLM", _projections(permuted=False) + _NORMS + _QK_NORMS),
    )
}


def architecture_of(config: ModelConfig) -> Architecture:
    return ARCHITECTURES[config.architecture]
