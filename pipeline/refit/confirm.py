"""Whether a layout is that of this very engine: decided before a byte is written."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from layouts.confirm import check_known
from layouts.errors import DecodeRefused
from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import EngineSetError, MismatchError
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.outside import checked_blob, outside_sha256

SIDECARS = "*.layout.toml"


def confirm_engine(engine: Path, layout: EngineLayout, base: AssignedWeights | None = None) -> str:
    """Confirm that a layout may be used for writing to an engine.

    Parameters
    ----------
    base : the weights that the engine was compiled from; looked at where the layout does not name the engine

    Returns
    -------
    by what it is confirmed, in words

    Raises
    ------
    MismatchError : weights of another size, an engine that the layout does not name
    DecodeRefused : the layout does not predict the engine from the base; names the engine and what differs
    """
    checked_blob(engine, layout)
    found = outside_sha256(engine, layout)
    if found == layout.outside:
        return "the engine is the layout's own but for its weights"
    if base is None:
        reason = "the layout is not confirmed on this engine, and no base weights are given to confirm it by"
        expected = layout.outside or "a layout that names its engine"
        raise MismatchError(reason, file=engine, where="outside the weights", expected=expected, found=found)
    try:
        corrected = sum(check_known(layout, read_blob(engine), base.read).values())
    except DecodeRefused as error:
        raise error.in_file(engine) from None
    elements = f", {corrected} elements corrected by a step" if corrected else ""
    return f"the layout predicts the engine from {base.source.path}{elements}"


def known_layout(*engines: Path) -> tuple[str, EngineLayout] | None:
    """Name and layout of the first of ours that is of one of these engines; None for none."""
    with as_file(files("layouts") / "known") as folder:
        for path in sorted(folder.glob(SIDECARS)):
            layout = read_layout(path)
            if any(_names(layout, engine) for engine in engines):
                return path.name, layout
    return None


def _names(layout: EngineLayout, engine: Path) -> bool:
    try:
        return weight_blob(engine).size == layout.blob_bytes and outside_sha256(engine, layout) == layout.outside
    except EngineSetError:  # a file that is no engine is none of the known ones
        return False
