"""Layouts of a vendor directory, decoded from one engine of each kind and the checkpoint that it was built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from layouts.integers import INTEGERS
from layouts.stored import EngineLayout, StoredTensor
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.decode.anchored import decode_engine
from pipeline.errors import DecodeRefused
from pipeline.refit.plan import folded_kinds
from pipeline.toolchain.embedding import embedding_layout
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, POST_ENGINE
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_package import Package


def decode_packaged(package: Package, kind: str, weights: Checkpoint) -> EngineLayout:
    """The layout of one kind of engine; of layers it is the first one's, and holds for all (`confirm_package`).

    Raises DecodeRefused naming the file.
    """
    if kind == EMBEDDING_ENGINE:  # whose rows lie one behind the other, as the runtime maps them
        return embedding_layout(weights.config)
    engine = package.directory / package.names.file(kind)
    layout = decode_engine(engine, weights).layout
    if layout.kind != kind:
        raise DecodeRefused("another kind of engine", file=engine, where="kind", expected=kind, found=layout.kind)
    return replace(layout, outside="") if kind == LAYER else layout


def decoded_options(calls: CompileOptions, layouts: Mapping[str, EngineLayout]) -> dict[str, Any]:
    """The flags of a compiler that would store weights as these layouts do, with the lengths of `calls`."""
    layer, post = (_largest(layouts[kind]) for kind in (LAYER, POST_ENGINE))
    options: dict[str, Any] = calls.as_dict() | {
        "weight_type": _type(layer),
        "post_weight_type": _type(post),
        "rounding": "truncate" if layer.codec.endswith("_truncated") else "nearest",
        "fold_norms": LAYER in folded_kinds(layouts),
    }
    for stored in (layer, post):
        if stored.scales is not None and stored.codec == "s4":
            options["scale_type"] = stored.scales.entry
        elif stored.scales is not None:
            over = "row" if stored.scales.shared else "group"
            options["scale_rule"] = f"{over}/{stored.scales.divisor:g}"
    return options


def has_integers(layouts: Mapping[str, EngineLayout]) -> bool:
    """Whether any weight has scales."""
    return any(stored.codec in INTEGERS for layout in layouts.values() for stored in layout.tensors)


def _largest(layout: EngineLayout) -> StoredTensor:
    return max(layout.tensors, key=lambda stored: stored.shape[0] * stored.shape[1])


def _type(stored: StoredTensor) -> str:
    return stored.codec.removesuffix("_truncated")
