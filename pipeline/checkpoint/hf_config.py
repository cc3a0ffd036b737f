"""`config.json` of a Hugging Face directory, read and written.

Defaults of absent keys are those of the transformers configuration classes, as published in their documentation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.checkpoint.slots import check_heads, inside_vocabulary
from pipeline.errors import CheckpointError, MissingFileError
from pipeline.model import ARCHITECTURES, ModelConfig

_ROPE_THETA = 10000.0
_RMS_NORM_EPS = 1e-6
_MAX_POSITIONS = 2048
_MAX_JSON = 64 << 20


def hf_config_dict(config: ModelConfig, dtype: str = "bfloat16") -> dict[str, Any]:
    """The content of a `config.json` that reads back as an equal `ModelConfig`."""
    eos = config.eos_token_ids
    return {
        "architectures": [ARCHITECTURES[config.architecture].hf_class],
        "model_type": config.architecture,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "hidden_act": ARCHITECTURES[config.architecture].activation,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "tie_word_embeddings": config.tie_word_embeddings,
        "max_position_embeddings": config.max_position_embeddings,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": None if not eos else eos[0] if len(eos) == 1 else list(eos),
        "torch_dtype": dtype,
        "use_cache": True,
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


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object; anything else is refused."""
    if not path.is_file():
        raise MissingFileError("no such file", file=path)
    if path.stat().st_size > _MAX_JSON:
        raise CheckpointError("too large for JSON", file=path, expected=f"<= {_MAX_JSON}", found=path.stat().st_size)
    try:
        data = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"not JSON: {error}", file=path) from error
    if not isinstance(data, dict):
        raise CheckpointError("not a JSON object", file=path, expected="object", found=type(data).__name__)
    return data


def config_from_dict(data: Mapping[str, Any], file: Path) -> ModelConfig:
    """The `ModelConfig` of a parsed `config.json`; `file` is for the error lines. See `read_hf_config`."""
    fields = _Fields(data, file)
    architecture = _architecture(fields)
    _refuse_unsupported(fields, ARCHITECTURES[architecture].activation)
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    config = ModelConfig(
        architecture=architecture,
        hidden_size=hidden,
        num_hidden_layers=fields.count("num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=fields.count("num_key_value_heads", heads),
        head_dim=fields.count("head_dim", hidden // heads),
        intermediate_size=fields.count("intermediate_size"),
        vocab_size=fields.count("vocab_size"),
        rms_norm_eps=fields.positive("rms_norm_eps", _RMS_NORM_EPS),
        rope_theta=_rope_theta(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        max_position_embeddings=fields.count("max_position_embeddings", _MAX_POSITIONS),
        bos_token_id=_first(fields.ids("bos_token_id")),
        eos_token_ids=fields.ids("eos_token_id"),
    )
    check_heads(config, file)
    return config


class _Fields:
    """Typed access to the keys of a JSON object; a JSON null counts as absent."""

    def __init__(self, data: Mapping[str, Any], file: Path) -> None:
        self.data, self.file = data, file

    def get(self, key: str, default: Any = None) -> Any:
        value = self.data.get(key)
        return default if value is None else value

    def bad(self, key: str, reason: str, expected: object, found: object) -> CheckpointError:
        return CheckpointError(reason, file=self.file, where=key, expected=expected, found=found)

    def count(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if type(value) is not int or not 0 < value < 1 << 31:
            raise self.bad(key, "missing or impossible value", "a positive integer", value)
        return value

    def positive(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if type(value) not in (int, float) or not 0 < value < math.inf:
            raise self.bad(key, "impossible value", "a positive number", value)
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if type(value) is not bool:
            raise self.bad(key, "wrong type", "true or false", value)
        return value

    def ids(self, key: str) -> tuple[int, ...]:
        value = self.get(key, [])
        listed = value if isinstance(value, list) else [value]
        if any(type(token) is not int for token in listed):
            raise self.bad(key, "not token ids", "an integer or a list of integers", value)
        vocab = self.count("vocab_size")
        return tuple(token for token in listed if inside_vocabulary(token, vocab, self.file, key))


def _architecture(fields: _Fields) -> str:
    by_class = {arch.hf_class: arch.name for arch in ARCHITECTURES.values()}
    classes = fields.get("architectures", [])
    named = classes[0] if isinstance(classes, list) and classes else None
    model_type = fields.get("model_type")
    known = ", ".join(by_class)
    if named is not None and named not in by_class:
        raise fields.bad("architectures", "unknown architecture", f"one of {known}", named)
    if model_type is not None and model_type not in ARCHITECTURES:
        raise fields.bad("model_type", "unknown architecture", f"one of {', '.join(ARCHITECTURES)}", model_type)
    if named is None and model_type is None:
        raise fields.bad("architectures", "no architecture is named", f"one of {known}", None)
    if named is not None and model_type is not None and by_class[named] != model_type:
        raise fields.bad("model_type", "contradicts architectures", by_class[named], model_type)
    return str(model_type if named is None else by_class[named])


def _refuse_unsupported(fields: _Fields, activation: str) -> None:
    found = fields.get("hidden_act", activation)
    if found != activation:
        raise fields.bad("hidden_act", "unsupported activation", activation, found)
    if fields.get("quantization_config") is not None:
        raise fields.bad("quantization_config", "packed weights are not read from safetensors", "none", "present")
    if fields.flag("use_sliding_window", False):
        raise fields.bad("use_sliding_window", "sliding-window attention is not supported", False, True)
    kinds = fields.get("layer_types", [])
    others = [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]
    if others:
        raise fields.bad("layer_types", "unsupported attention", "full_attention", others[0])


def _rope_theta(fields: _Fields) -> float:
    """The RoPE base, from the top level or from the newer `rope_parameters`; refuses every scaling by name."""
    theta = fields.positive("rope_theta", 0.0) if fields.get("rope_theta") is not None else None
    for key in ("rope_scaling", "rope_parameters"):
        nested = fields.get(key, {})
        if not isinstance(nested, dict):
            raise fields.bad(key, "wrong type", "object", type(nested).__name__)
        kind = nested.get("rope_type", nested.get("type", "default" if set(nested) <= {"rope_theta"} else "unnamed"))
        if kind != "default":
            raise fields.bad(key, "RoPE scaling is not supported", "default", kind)
        if nested.get("rope_theta") is not None:
            inner = _Fields(nested, fields.file).positive("rope_theta", _ROPE_THETA)
            if theta not in (None, inner):
                raise fields.bad(key, "contradicts rope_theta", theta, inner)
            theta = inner
    for part in (fields.data, fields.get("rope_parameters", {})):
        if part.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise fields.bad("partial_rotary_factor", "partial RoPE is not supported", 1, part["partial_rotary_factor"])
    return _ROPE_THETA if theta is None else theta


def _first(ids: tuple[int, ...]) -> int | None:
    return ids[0] if ids else None
