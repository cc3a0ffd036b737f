"""Confirms decoded layouts on every engine of a vendor directory, each with its own weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from layouts.compare import compare_tensor
from layouts.confirm import ReadWeight, check_known, confirm
from layouts.stored import EngineLayout, StoredTensor
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.container.blob import Bytes, read_blob
from pipeline.errors import DecodeRefused, EngineSetError, fault_lines
from pipeline.refit.plan import EnginePlan, all_plans, folded_kinds, plan_engine
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import LAYER
from pipeline.toolchain.template_package import Package
from pipeline.toolchain.templates import known_weights


def confirm_package(package: Package, layouts: Mapping[str, EngineLayout], weights: Checkpoint) -> dict[str, int]:
    """That every engine holds the weights that it should, where the layouts say.

    A bit that differs between two layers of one type belongs to a tensor, too: what differs there are weights.

    Parameters
    ----------
    weights : the checkpoint that the package was built from

    Returns
    -------
    corrected elements of each engine file (layouts/confirm.py)

    Raises
    ------
    PlanRefusedError : one line for each engine that does not; a layer that holds the weights of another one is named
    """
    faults: list[str] = []
    corrected: dict[str, int] = {}
    for plan in all_plans(weights.config, folded_kinds(layouts)):
        path = package.directory / package.names.file(plan.kind, plan.layer)
        try:
            corrected[path.name] = _confirm(package, path, layouts[plan.kind], plan, weights)
        except DecodeRefused as error:
            other = _layer_inside(path, layouts[plan.kind], plan, weights)
            hint = "" if other is None else f"; it holds the weights of layer {other}"
            faults += [f"{line}{hint}" for line in fault_lines(error.in_file(path)) or []]
        except EngineSetError as error:
            faults += fault_lines(error) or []
    if faults:
        raise PlanRefusedError(faults)
    return corrected


def _confirm(package: Package, path: Path, layout: EngineLayout, plan: EnginePlan, weights: Checkpoint) -> int:
    blob, known = read_blob(path), known_weights(weights, plan)
    if blob.size != layout.blob_bytes:
        raise DecodeRefused("bytes of weights", where=layout.blob, expected=layout.blob_bytes, found=blob.size)
    twin = _twin(package, plan, weights)
    counts = check_known(layout, blob, known) if twin is None else confirm(layout, [blob, twin], blob, known)
    return sum(counts.values())


def _twin(package: Package, plan: EnginePlan, weights: Checkpoint) -> Bytes | None:
    """The engine of another layer of the same type."""
    config = weights.config
    layers = range(config.num_hidden_layers) if plan.kind == LAYER else range(0)
    alike = [n for n in layers if n != plan.layer and config.layer_type(n) == config.layer_type(plan.layer)]
    return read_blob(package.directory / package.names.file(LAYER, alike[0])) if alike else None


def _layer_inside(path: Path, layout: EngineLayout, plan: EnginePlan, weights: Checkpoint) -> int | None:
    """Which other layer's weights an engine holds, by its smallest matrix."""
    blob, matrices = read_blob(path), [stored for stored in layout.tensors if stored.shape[0] > 1]
    if plan.kind != LAYER or not matrices or blob.size != layout.blob_bytes:
        return None
    least = min(matrices, key=lambda stored: stored.shape[0] * stored.shape[1])
    folded = LAYER in folded_kinds({LAYER: layout})
    layers = (n for n in range(weights.config.num_hidden_layers) if n != plan.layer)
    known = ((n, known_weights(weights, plan_engine(weights.config, LAYER, n, folded))) for n in layers)
    return _first_that_fits(known, least, blob)


def _first_that_fits(known: Iterable[tuple[int, ReadWeight]], stored: StoredTensor, blob: Bytes) -> int | None:
    for layer, weights in known:
        found = compare_tensor(stored, blob, weights)
        if not any(copy.elements or copy.entries for copy in found.values()):
            return layer
    return None
