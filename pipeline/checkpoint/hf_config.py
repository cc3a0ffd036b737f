"""`config.json` of a Hugging Face directory, read and written.

Defaults of absent keys are those of the transformers configuration classes, as published in their documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.checkpoint.hf_attention import attention_fields
from pipeline.checkpoint.hf_fields import Fields, read_json_object
from pipeline.checkpoint.slots import check_heads
from pipeline.model import ARCHITECTURES, Architecture, ModelConfig

_RMS_NORM_EPS = 1e-6
_MAX_POSITIONS = 2048
# the table's word -> the word of transformers
_ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}


def hf_config_dict(config: ModelConfig, dtype: str = "bfloat16") -> dict[str, Any]:
    """The content of a `config.json` that reads back as an equal `ModelConfig`; a trimmed head has no such file."""
    eos, arch = config.eos_token_ids, ARCHITECTURES[config.architecture]
    return {
        "architectures": [arch.hf_class],
        "model_type": _hf_type(arch),
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "hidden_act": _ACTIVATIONS[arch.activation],
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        **(_sliding_keys(config, arch) if arch.full_every else {}),
        "tie_word_embeddings": config.tie_word_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": None if not eos else eos[0] if len(eos) == 1 else list(eos),
        "torch_dtype": dtype,
        "use_cache": True,
    }


def _sliding_keys(config: ModelConfig, arch: Architecture) -> dict[str, Any]:
    return {
        "hidden_activation": _ACTIVATIONS[arch.activation],
        "layer_types": [config.layer_type(layer) for layer in range(config.num_hidden_layers)],
        "sliding_window": config.sliding_window or None,
        "rope_local_base_freq": config.rope_local_theta or None,
        "query_pre_attn_scalar": config.head_dim,
    }


def read_hf_config(path: Path) -> ModelConfig:
    """Reads a `config.json`.

    Raises
    ------
    MissingFileError : the file is not there
    CheckpointError : not JSON, an unknown architecture, a missing or impossible value, a RoPE scaling,
        anything else that the engines cannot follow; the field is named
    """
    return config_from_dict(read_json_object(path), path)


def config_from_dict(data: Mapping[str, Any], file: Path) -> ModelConfig:
    """The `ModelConfig` of a parsed `config.json`; `file` is for the error lines. See `read_hf_config`."""
    arch = ARCHITECTURES[_architecture(Fields(data, file))]
    fields = Fields(data, file, dict(arch.hf_defaults))
    _refuse_unsupported(fields, arch)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    layers = fields.count("num_hidden_layers")
    config = ModelConfig(
        architecture=arch.name,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=fields.count("num_key_value_heads", heads),
        head_dim=fields.count("head_dim", hidden // heads),
        intermediate_size=fields.count("intermediate_size"),
        vocab_size=fields.count("vocab_size"),
        rms_norm_eps=fields.positive("rms_norm_eps", _RMS_NORM_EPS),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        max_position_embeddings=fields.count("max_position_embeddings", _MAX_POSITIONS),
        bos_token_id=_first(fields.ids("bos_token_id")),
        eos_token_ids=fields.ids("eos_token_id"),
        **attention_fields(fields, arch, layers),
    )
    fields.require("query_pre_attn_scalar", config.head_dim)
    check_heads(config, file)
    return config


def _architecture(fields: Fields) -> str:
    by_class = {arch.hf_class: arch.name for arch in ARCHITECTURES.values()}
    by_type = {_hf_type(arch): arch.name for arch in ARCHITECTURES.values()}
    classes = fields.get("architectures", [])
    named = classes[0] if isinstance(classes, list) and classes else None
    model_type = fields.get("model_type")
    for part in ("vision_config", "audio_config", "text_config"):
        if fields.get(part) is not None:
            raise fields.bad(part, "multimodal models are not supported", "a text model", named or model_type)
    if named is not None and named not in list(by_class):
        raise fields.bad("architectures", "unknown architecture", f"one of {', '.join(by_class)}", named)
    if model_type is not None and model_type not in list(by_type):
        raise fields.bad("model_type", "unknown architecture", f"one of {', '.join(by_type)}", model_type)
    if named is None and model_type is None:
        raise fields.bad("architectures", "no architecture is named", f"one of {', '.join(by_class)}", None)
    if named is not None and model_type is not None and by_class[named] != by_type[model_type]:
        expected = _hf_type(ARCHITECTURES[by_class[named]])
        raise fields.bad("model_type", "contradicts architectures", expected, model_type)
    return by_type[model_type] if named is None else by_class[named]


def _hf_type(arch: Architecture) -> str:
    return arch.hf_type or arch.name


def _refuse_unsupported(fields: Fields, arch: Architecture) -> None:
    for key in ("hidden_act", "hidden_activation"):
        found = fields.get(key, _ACTIVATIONS[arch.activation])
        if found != _ACTIVATIONS[arch.activation]:
            raise fields.bad(key, "unsupported activation", _ACTIVATIONS[arch.activation], found)
    if fields.get("quantization_config") is not None:
        raise fields.bad("quantization_config", "packed weights are not read from safetensors", "none", "present")
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        fields.require(key, 0)
    fields.require("use_bidirectional_attention", False)


def _first(ids: tuple[int, ...]) -> int | None:
    return ids[0] if ids else None
