"""Sliding windows and RoPE bases of a `config.json`, in their older and newer spellings."""

from __future__ import annotations

from typing import Any

from pipeline.checkpoint.hf_fields import Fields
from pipeline.checkpoint.slots import MAX_LAYERS, every_nth_full
from pipeline.model import FULL, LAYER_TYPES, SLIDING, Architecture

_ROPE_THETA = 10000.0
# layer type -> the key of its base at the top level
_BASE_KEYS = {FULL: "rope_theta", SLIDING: "rope_local_base_freq"}


def attention_fields(fields: Fields, arch: Architecture, layers: int) -> dict[str, Any]:
    """`rope_theta` of `ModelConfig`, and `layer_types`, `sliding_window`, `rope_local_theta` where layers slide.

    Raises CheckpointError for sliding layers of an architecture that has none, a RoPE scaling, contradictions.
    """
    found: dict[str, Any] = {"rope_theta": _theta(fields, FULL, arch)}
    if not arch.full_every:
        _refuse_sliding(fields)
        return found
    types = _layer_types(fields, arch, layers)
    if SLIDING in types:
        local = _theta(fields, SLIDING, arch)
        found |= {"layer_types": types, "sliding_window": fields.count("sliding_window"), "rope_local_theta": local}
    return found


def _refuse_sliding(fields: Fields) -> None:
    """A window that holds the whole context changes nothing."""
    kinds = fields.get("layer_types", [])
    others = [kind for kind in kinds if kind != FULL] if isinstance(kinds, list) else [kinds]
    window, context = fields.get("sliding_window"), fields.get("max_position_embeddings")
    if type(window) is int and type(context) is int and window >= context:
        others = [kind for kind in others if kind != SLIDING]
    elif fields.flag("use_sliding_window", False):
        raise fields.bad("use_sliding_window", "sliding-window attention is not supported", False, True)
    if others:
        raise fields.bad("layer_types", "unsupported attention", FULL, others[0])


def _layer_types(fields: Fields, arch: Architecture, layers: int) -> tuple[str, ...]:
    types = fields.get("layer_types")
    if types is None:
        if layers > MAX_LAYERS:
            raise fields.bad("num_hidden_layers", "too many layers", f"<= {MAX_LAYERS}", layers)
        old = "sliding_window_pattern"
        return every_nth_full(fields.count(old if fields.get(old) is not None else f"_{old}", arch.full_every), layers)
    if not isinstance(types, list) or len(types) != layers:
        found = len(types) if isinstance(types, list) else types
        raise fields.bad("layer_types", "not one type per layer", layers, found)
    unknown = [kind for kind in types if kind not in LAYER_TYPES]
    if unknown:
        raise fields.bad("layer_types", "unsupported attention", " or ".join(LAYER_TYPES), unknown[0])
    return tuple(types)


def _theta(fields: Fields, kind: str, arch: Architecture) -> float:
    """The RoPE base of layers of this type, from the top level or from `rope_parameters`; every scaling is refused."""
    key = _BASE_KEYS[kind]
    theta = None if fields.data.get(key) is None else fields.positive(key)
    for place in ("rope_scaling", "rope_parameters"):
        inner = _nested_theta(fields, place, kind, arch)
        if None not in (theta, inner) and theta != inner:
            raise fields.bad(place, f"contradicts {key}", theta, inner)
        theta = inner if theta is None else theta
    return fields.positive(key, _ROPE_THETA) if theta is None else theta


def _nested_theta(fields: Fields, place: str, kind: str, arch: Architecture) -> float | None:
    nested = fields.object(place)
    if arch.full_every and nested and nested.keys() <= set(LAYER_TYPES):
        nested = Fields(nested, fields.file).object(kind)
    elif kind == SLIDING:
        return None
    unnamed = "default" if nested.keys() <= {"rope_theta", "partial_rotary_factor"} else "unnamed"
    scaling = nested.get("rope_type", nested.get("type", unnamed))
    if scaling != "default":
        raise fields.bad(place, "RoPE scaling is not supported", "default", scaling)
    for part in (fields.data, nested):
        if part.get("partial_rotary_factor") not in (None, 1, 1.0):
            raise fields.bad("partial_rotary_factor", "partial RoPE is not supported", 1, part["partial_rotary_factor"])
    return None if nested.get("rope_theta") is None else Fields(nested, fields.file).positive("rope_theta")
