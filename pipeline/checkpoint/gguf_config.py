"""The `ModelConfig` of a GGUF's metadata.

Keys and their defaults: the GGUF specification and llama.cpp's loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.checkpoint.gguf_header import MetadataArray
from pipeline.checkpoint.gguf_keys import GgufKeys
from pipeline.checkpoint.slots import MAX_LAYERS, check_heads, every_nth_full
from pipeline.errors import CheckpointError
from pipeline.model import ARCHITECTURES, EMBEDDING, FULL, HEAD, SLIDING, ModelConfig

_ROPE_THETA = 10000.0
_WINDOW, _PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_HEAD_DIMS = (
    *("attention.value_length", "attention.key_length_swa", "attention.value_length_swa"),
    *("rope.dimension_count", "rope.dimension_count_swa"),
)
# architecture keys that change what a model computes -> the values that change nothing
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0, 1),
    "rope.scale_linear": (0, 1),
    "rope.scaling.attn_factor": (1,),
    "attention.causal": (True,),
    "attention.scale": (0,),
    "attention.clamp_kqv": (0,),
    "attention.max_alibi_bias": (0,),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "embedding_scale": (0, 1),
    "residual_scale": (0, 1),
    "logit_scale": (0, 1),
    "expert_count": (0,),
    "use_parallel_residual": (False,),
}


def config_from_gguf(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], file: Path) -> ModelConfig:
    """The model that the metadata describe.

    Parameters
    ----------
    metadata : of the file, or of the first shard
    shapes : tensor name -> shape; the vocabulary is the embedding's first axis, which is tied when there is no head
    file : for error lines

    Raises
    ------
    CheckpointError : unknown architecture, missing or impossible key, a feature that engines do not have;
        the key is named
    """
    keys = GgufKeys(metadata, file)
    heads, hidden = keys.count("attention.head_count"), keys.count("embedding_length")
    head_dim = keys.count("attention.key_length", hidden // heads)
    for key in _HEAD_DIMS:
        keys.require(key, (head_dim,))
    for key, neutral in _NEUTRAL.items():
        keys.require(key, neutral)
    embedding = shapes.get(EMBEDDING.gguf)
    if embedding is None:
        raise CheckpointError("tensor is missing", file=file, where=EMBEDDING.gguf, expected=f"[vocabulary, {hidden}]")
    keys.warn_of_vocabulary(embedding[0])
    config = ModelConfig(
        architecture=keys.architecture,
        hidden_size=hidden,
        num_hidden_layers=keys.count("block_count"),
        num_attention_heads=heads,
        num_key_value_heads=keys.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=keys.count("feed_forward_length"),
        vocab_size=embedding[0],
        rms_norm_eps=keys.positive("attention.layer_norm_rms_epsilon", None),
        rope_theta=keys.positive("rope.freq_base", _ROPE_THETA),
        tie_word_embeddings=HEAD.gguf not in shapes,
        max_position_embeddings=keys.count("context_length"),
        bos_token_id=next(iter(keys.tokens(("bos_token_id",), embedding[0])), None),
        eos_token_ids=keys.tokens(_EOS_KEYS, embedding[0]),
        **_sliding(keys),
    )
    check_heads(config, file)
    return config


def _sliding(keys: GgufKeys) -> dict[str, Any]:
    """`layer_types`, `sliding_window` and `rope_local_theta` of `ModelConfig`; nothing where no layer slides."""
    window = keys.get(_WINDOW)
    if window in (None, 0):
        return {}
    if not ARCHITECTURES[keys.architecture].full_every:
        context = keys.count("context_length")
        if keys.count(_WINDOW) < context:
            raise keys.bad(keys.full(_WINDOW), "not supported by the engines", f"0 or >= {context}", window)
        return {}
    types = _layer_types(keys)
    if SLIDING not in types:
        return {}
    local = keys.positive("rope.freq_base_swa", _ROPE_THETA)
    return {"layer_types": types, "sliding_window": keys.count(_WINDOW), "rope_local_theta": local}


def _layer_types(keys: GgufKeys) -> tuple[str, ...]:
    """llama.cpp's reading: a period, or one flag per layer that says whether it slides."""
    layers, pattern = keys.count("block_count"), keys.metadata.get(keys.full(_PATTERN))
    if layers > MAX_LAYERS:
        raise keys.bad(keys.full("block_count"), "too many layers", f"<= {MAX_LAYERS}", layers)
    if not isinstance(pattern, MetadataArray):
        return every_nth_full(keys.count(_PATTERN, ARCHITECTURES[keys.architecture].full_every), layers)
    if len(pattern) != layers:
        raise keys.bad(keys.full(_PATTERN), "not one flag per layer", layers, len(pattern))
    return tuple(SLIDING if flag else FULL for flag in pattern)
