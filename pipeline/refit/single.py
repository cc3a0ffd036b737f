"""The plan of one engine by its layout alone: a weight has the source's own name, that of a layer without its number."""

from __future__ import annotations

from collections.abc import Iterator

from layouts.stored import EngineLayout
from pipeline.checkpoint.protocol import WeightSource
from pipeline.errors import MismatchError
from pipeline.model import architecture_of
from pipeline.refit.choose import bias_name
from pipeline.refit.plan import Assignment, EnginePlan
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, LAYER, MODEL

Shape = tuple[int, ...]


def plan_single(layout: EngineLayout, source: WeightSource, layer: int | None = None) -> EnginePlan:
    """What each weight of an engine is made of.

    Parameters
    ----------
    layer : whose weights go into an engine of a layer; None for other engines

    Raises
    ------
    MismatchError : a layer that is not given, or that the engine does not have; an embedding out of a source that does not
        say whether it is scaled
    """
    if layout.kind == LAYER and layer is None:
        raise MismatchError("the layout is of a layer: which layer's weights go in is to be said")
    if layout.kind != LAYER and layer is not None:
        raise MismatchError("an engine that is no layer's takes the weights of no layer", found=layout.kind)
    prefix = layer_prefix(layer)
    factor = _embedding_scale(source) if layout.kind == EMBEDDING_ENGINE else 1.0
    weights = [
        Assignment(item.name, (prefix + item.source_name, *([prefix + item.folded] if item.folded else [])), factor)
        for item in layout.tensors
    ]
    names = dict.fromkeys(filter(None, map(bias_name, layout.tensors)))
    biases = [Assignment(name, (prefix + name,)) for name in names if name not in layout.names()]
    return EnginePlan(layout.kind, layer or 0, (*weights, *biases))


def layer_prefix(layer: int | None) -> str:
    """What a checkpoint has before the names of a layer."""
    return "" if layer is None else f"model.layers.{layer}."


def _embedding_scale(source: WeightSource) -> float:
    config = getattr(source, "config", None)
    if config is None:
        reason = "an embedding file needs a source with a config, which says whether it is scaled"
        raise MismatchError(reason, file=source.path)
    return architecture_of(config).embedding_scale(config)


def check_single(layout: EngineLayout, plan: EnginePlan, source: WeightSource) -> list[str]:
    """Compare a source with the engine that it is to go into.

    Returns
    -------
    names of the source that the engine has no place for; none for a language model, whose other engines have the rest

    Raises
    ------
    PlanRefusedError : tensors that are missing or of another shape, or of this very layer and without a place; all of them
    """
    faults = [f"{source.path}: {fault}" for fault in _faults(layout, plan, source)]
    used = {name for item in plan.assignments for name in item.sources}
    unused = [name for name in source.names() if name not in used]
    if layout.kind == LAYER:
        of_layer = [name for name in unused if name.startswith(layer_prefix(plan.layer))]
        faults += [f"{source.path}: {name}: the engine has no place for it" for name in of_layer]
    if faults:
        raise PlanRefusedError(faults)
    return unused if layout.kind == MODEL else []


def _faults(layout: EngineLayout, plan: EnginePlan, source: WeightSource) -> Iterator[str]:
    names = set(source.names())
    for name, shapes in _needed(layout, plan).items():
        if name not in names:
            yield f"{name}: missing, the engine needs it as {list(shapes[0])}"
        elif source.shape(name) not in shapes:
            yield f"{name}: the engine has {list(shapes[0])}, the source has {list(source.shape(name))}"


def _needed(layout: EngineLayout, plan: EnginePlan) -> dict[str, list[Shape]]:
    """Name in the source -> the shapes that it may have; the first is the usual one."""
    found: dict[str, list[Shape]] = {}
    sources = {item.tensor: item.sources for item in plan.assignments}
    for stored in layout.tensors:
        name, *gains = sources[stored.name]
        usual, rows, cols = stored.source_shape, stored.shape[0], stored.shape[1] - stored.padding
        found[name] = [usual] if stored.dims or rows > 1 else [usual, (1, cols)]
        found |= {gain: [(cols,)] for gain in gains}
        if bias := bias_name(stored):
            found.setdefault(sources[bias][0], [(rows,)])
    return found
