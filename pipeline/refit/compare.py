"""Compares what an engine holds of a weight with what its source gives."""

from __future__ import annotations

from pathlib import Path

from layouts.errors import LayoutError
from layouts.stored import StoredTensor
from pipeline.container.blob import Bytes
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import ScaleMode, choose_rows
from pipeline.refit.readback import read_back
from pipeline.refit.refit import does_not_fit


def compare_weight(weights: AssignedWeights, stored: StoredTensor, blob: Bytes, scales: ScaleMode, file: Path) -> int:
    """Compare every copy of a weight; the number of its elements.

    Parameters
    ----------
    blob : the weights in `file`; in the mode `engine` compared with what its own scales give, within a step

    Raises
    ------
    VerifyError : what reads back otherwise; names tensor, copy and element
    ToolchainError : an engine's own scale that is 0, infinite or contradicts itself
    NotFiniteError : the source has what the engine's codec cannot hold
    """
    elements = 0
    for given in weights.ranges(stored):
        try:
            chosen = choose_rows(stored, given, scales, blob, file)
        except LayoutError as error:
            raise does_not_fit(weights, stored, given, error) from None
        read_back(blob, stored, chosen.encoded, given.first, file)
        elements += given.values.size
    return elements
