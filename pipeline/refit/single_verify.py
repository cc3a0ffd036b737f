"""Whether one engine file holds what a source says, and is otherwise the engine that its layout names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from layouts.stored import EngineLayout
from pipeline.container.blob import read_blob
from pipeline.errors import EngineSetError, MismatchError, VerifyError, fault_lines
from pipeline.refit.assigned import AssignedWeights
from pipeline.refit.choose import ScaleMode
from pipeline.refit.compare import compare_weight
from pipeline.refit.outside import checked_blob, compare_outside, outside_sha256


@dataclass
class EngineVerification:
    """What was compared, and one line for each fault: at most one for a tensor."""

    file: Path
    elements: int = 0
    faults: list[str] = field(default_factory=list)

    def note(self, error: EngineSetError) -> None:
        self.faults += fault_lines(error) or []


def verify_engine(
    path: Path, weights: AssignedWeights, scales: ScaleMode, template: Path | None = None
) -> EngineVerification:
    """Compare weights and entries of every copy with the source, and every other bit with the engine they were put into.

    Parameters
    ----------
    template : the engine it was made from; what is outside the weights is compared byte by byte, and with the layout's hash
        where it has one

    Raises
    ------
    MismatchError : weights of another size than the layout's; neither a template nor a hash to compare the rest with
    """
    layout, result = weights.layout, EngineVerification(path)
    checked_blob(path, layout)
    if template is None and not layout.outside:
        raise MismatchError(
            "the layout does not name its engine: a template is needed to compare the rest with", file=path
        )
    blob = read_blob(path)
    for stored in layout.tensors:
        try:
            result.elements += compare_weight(weights, stored, blob, scales, path)
        except EngineSetError as error:
            result.note(error)
    try:
        _compare_rest(path, layout, template)
    except EngineSetError as error:
        result.note(error)
    return result


def _compare_rest(path: Path, layout: EngineLayout, template: Path | None) -> None:
    if template is not None:
        with path.open("rb") as file:
            compare_outside(template, file.fileno(), path, layout)
    if layout.outside and (found := outside_sha256(path, layout)) != layout.outside:
        reason = "what is outside the weights is not the layout's engine"
        raise VerifyError(reason, file=path, expected=layout.outside, found=found)
