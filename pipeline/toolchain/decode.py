"""From compiled marker builds to the layout of one kind of engine."""

from __future__ import annotations

from pathlib import Path

from layouts.decode import decode_float_engine
from layouts.stored import EngineLayout
from pipeline.axmodel.blob import read_blob, weight_blob
from pipeline.errors import DecodeRefused
from pipeline.model import ModelConfig
from pipeline.refit.plan import plan_engine
from pipeline.toolchain.markers import BUILDS, CONFIRM, marker_checkpoint, plan_markers
from pipeline.toolchain.templates import known_weights


def decode_builds(config: ModelConfig, kind: str, engines: list[Path]) -> EngineLayout:
    """Decode the layout of a kind of engine.

    Parameters
    ----------
    config : dimensions of the model
    engines : that engine in build 0, 1 and 2 (pipeline/toolchain/markers.py)

    Raises
    ------
    DecodeRefused : names the engine file; see layouts/decode.py
    """
    if len(engines) != BUILDS:
        raise DecodeRefused("number of marker builds", expected=BUILDS, found=len(engines))
    plan = plan_markers(config)
    sources = {item.tensor: item.sources[0] for item in plan_engine(plan.config, kind).assignments}
    known = known_weights(marker_checkpoint(plan, CONFIRM), sources.__getitem__)
    blobs = (read_blob(engines[0]), read_blob(engines[1]), read_blob(engines[2]))
    try:
        return decode_float_engine(kind, weight_blob(engines[0]).name, blobs, plan.engines[kind], plan.alphabet, known)
    except DecodeRefused as error:
        raise error.in_file(engines[0]) from None
