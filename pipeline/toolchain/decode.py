"""From compiled marker builds to the layout of one kind of engine."""

from __future__ import annotations

from pathlib import Path

from layouts.decode import decode_float_engine
from layouts.stored import EngineLayout
from pipeline.axmodel.blob import read_blob, weight_blob
from pipeline.errors import DecodeRefused
from pipeline.refit.plan import plan_engine
from pipeline.toolchain.markers import BUILDS, CONFIRM, MarkerPlan, marker_checkpoint
from pipeline.toolchain.templates import known_weights


def decode_builds(plan: MarkerPlan, kind: str, engines: list[Path]) -> EngineLayout:
    """Decode the layout of a kind of engine.

    Parameters
    ----------
    plan : of the marker builds
    engines : that engine in build 0, 1 and 2 (pipeline/toolchain/markers.py)

    Raises
    ------
    DecodeRefused : names the engine file; see layouts/decode.py
    """
    if len(engines) != BUILDS:
        raise DecodeRefused("number of marker builds", expected=BUILDS, found=len(engines))
    known = known_weights(marker_checkpoint(plan, CONFIRM), plan_engine(plan.config, kind))
    blobs = (read_blob(engines[0]), read_blob(engines[1]), read_blob(engines[2]))
    try:
        return decode_float_engine(kind, weight_blob(engines[0]).name, blobs, plan.engines[kind], plan.alphabet, known)
    except DecodeRefused as error:
        raise error.in_file(engines[0]) from None
