"""One engine, refitted: its layout is found and confirmed, the source is checked, then the weights go in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.checkpoint.open import open_weights_source
from pipeline.checkpoint.protocol import WeightSource
from pipeline.container.blob import weight_blob
from pipeline.errors import MismatchError
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import ScaleMode
from pipeline.refit.confirm import confirm_engine, known_layout
from pipeline.refit.refit import refit_engine
from pipeline.refit.report import EngineReport
from pipeline.refit.single import check_single, plan_single


@dataclass(frozen=True)
class NamedLayout:
    """A layout and where it comes from."""

    name: str
    layout: EngineLayout


@dataclass(frozen=True)
class Sources:
    """What goes in, what the engine was compiled from, and whose layer it is; paths as `open_weights_source` takes them."""

    checkpoint: Path
    base: Path | None = None
    layer: int | None = None


@dataclass(frozen=True)
class Refitted:
    """What became of an engine.

    confirmed : by what the layout is confirmed on it, in words
    unused : tensors of the source that the engine has no place for; with a base those alone that are not the base's
    """

    layout: str
    confirmed: str
    unused: list[str]
    report: EngineReport


def layout_for(engine: Path, sidecar: Path | None) -> NamedLayout:
    """The layout of a file, or the one of ours that names the engine.

    Raises MismatchError where there is none, ContainerError for a file that is no engine.
    """
    if sidecar is not None:
        return NamedLayout(str(sidecar), read_layout(sidecar))
    weight_blob(engine)
    known = known_layout(engine)
    if known is None:
        raise MismatchError("none of the known layouts is of this engine, name one", file=engine)
    return NamedLayout(*known)


def open_assigned(layout: EngineLayout, source: Path, layer: int | None) -> tuple[AssignedWeights, list[str]]:
    """The weights of a source for an engine, checked, and names of the source that it has no place for.

    Raises as `plan_single` and `check_single` do, or what the source is refused for.
    """
    opened = open_weights_source(source)
    plan = plan_single(layout, opened, layer)
    unused = check_single(layout, plan, opened)
    return AssignedWeights(opened, plan, layout), unused


def refit_file(engine: Path, named: NamedLayout, sources: Sources, scales: ScaleMode, output: Path) -> Refitted:
    """Write `output`: the engine with the weights of a source.

    Raises
    ------
    EngineSetError : a layout that is not confirmed on the engine, what the source or the proof is refused for; `output` is
        then as it was.
    """
    if output.exists() and output.samefile(engine):
        raise MismatchError("the output is the engine itself", file=output)
    layout = named.layout
    base = None if sources.base is None else open_assigned(layout, sources.base, sources.layer)[0]
    confirmed = confirm_engine(engine, layout, base)
    weights, unused = open_assigned(layout, sources.checkpoint, sources.layer)
    if base is not None:
        unused = [name for name in unused if not _equal(name, weights.source, base.source)]
    report = refit_engine(engine, layout, weights.plan, weights.source, output, scales)
    return Refitted(named.name, confirmed, unused, report)


def _equal(name: str, a: WeightSource, b: WeightSource) -> bool:
    return name in b.names() and np.array_equal(a.read(name), b.read(name))
