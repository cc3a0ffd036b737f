"""Layouts from marker builds that were compiled elsewhere: files in, layouts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from layouts.confirm import confirm
from layouts.stored import EngineLayout
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import DecodeRefused, MismatchError
from pipeline.refit.plan import plan_engine
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS, LAYER
from pipeline.toolchain.marker_files import ENGINES, MarkerFiles, compiled_engines, read_marker_files
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint
from pipeline.toolchain.templates import known_weights


@dataclass(frozen=True)
class Decoded:
    """A layout, the number of builds that it was decoded from, and per tensor how many elements the compiler corrected."""

    layout: EngineLayout
    builds: int
    corrected: Mapping[str, int]


def decode_marker_files(directory: Path, engines: str = ENGINES) -> list[Decoded]:
    """Decode and confirm the layouts of all kinds of engine of a directory of marker builds.

    Parameters
    ----------
    engines : the subdirectory of every build that holds what was compiled from it

    Raises
    ------
    MissingFileError, MismatchError, ToolchainError : a build, an engine or a checkpoint that is not as it was written
    DecodeRefused : engines that the markers do not explain
    """
    markers = read_marker_files(directory)
    plan = markers.plan
    layers = range(markers.model.num_hidden_layers)
    found = {kind: [compiled_engines(directory, markers, kind, engines)] for kind in KINDS}
    found[LAYER] += [compiled_engines(directory, markers, LAYER, engines, layer) for layer in layers[1:]]
    for builds in (builds for kind in KINDS for builds in found[kind]):
        _check_sizes(builds)
    return [_decode(markers, plan, kind, found[kind]) for kind in KINDS]


def _decode(markers: MarkerFiles, plan: MarkerPlan, kind: str, engines: list[list[Path]]) -> Decoded:
    layout = decode_builds(plan, kind, engines[0])
    corrected: dict[str, int] = dict.fromkeys(layout.names(), 0)
    for layer, builds in enumerate(engines):
        for name, count in _confirm(plan, layout, layer, builds).items():
            corrected[name] += count
    return Decoded(layout, len(engines[0]), corrected)


def _confirm(plan: MarkerPlan, layout: EngineLayout, layer: int, engines: list[Path]) -> dict[str, int]:
    """Confirm the layout on the engines of one layer, whatever its type."""
    folded = any(tensor.folded for tensor in layout.tensors)
    assigned = plan_engine(plan.config, layout.kind, layer, folded)
    known = known_weights(marker_checkpoint(plan, plan.confirm), assigned)
    blobs = [read_blob(engine) for engine in engines]
    try:
        return confirm(layout, blobs, blobs[-1], known)
    except DecodeRefused as error:
        raise error.in_file(engines[-1]) from None


def _check_sizes(engines: list[Path]) -> None:
    """All builds of one engine are of one shape."""
    blobs = [weight_blob(engine) for engine in engines]
    for engine, blob in zip(engines, blobs, strict=True):
        if blob.size != blobs[0].size:
            raise MismatchError(
                "weights of another size than in the first build",
                file=engine,
                where=blob.name,
                expected=blobs[0].size,
                found=blob.size,
            )
