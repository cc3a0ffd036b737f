"""From compiled marker builds to the layout of one kind of engine."""

from __future__ import annotations

from pathlib import Path

from layouts.decode import FloatMarkers, decode_float_engine
from layouts.decode_integers import decode_integer_engine
from layouts.stored import EngineLayout
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import DecodeRefused
from pipeline.refit.plan import plan_engine
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint
from pipeline.toolchain.templates import known_weights


def decode_builds(plan: MarkerPlan, kind: str, engines: list[Path]) -> EngineLayout:
    """Decode the layout of a kind of engine.

    Parameters
    ----------
    plan : what the builds hold
    engines : that engine in every build of `plan.builds_of(kind)`; of layers the first

    Raises
    ------
    DecodeRefused : names the engine file; see layouts/decode.py and layouts/decode_integers.py
    """
    if len(engines) != len(plan.builds_of(kind)):
        raise DecodeRefused("number of marker builds", expected=len(plan.builds_of(kind)), found=len(engines))
    known = known_weights(marker_checkpoint(plan, plan.confirm), plan_engine(plan.config, kind))
    blob, markers = weight_blob(engines[0]), plan.engines[kind]
    builds = [read_blob(engine) for engine in engines]
    try:
        if isinstance(markers, FloatMarkers):
            return decode_float_engine(kind, (blob.name, blob.offset), builds, markers, known)
        return decode_integer_engine(kind, (blob.name, blob.offset), builds, markers, known)
    except DecodeRefused as error:
        raise error.in_file(engines[0]) from None
