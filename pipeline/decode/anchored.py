"""A layout from one engine and the weights that it was compiled from: no compiler, no markers (docs/anchors.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from layouts.anchors.decode import Finding, decode_blob
from layouts.anchors.pick import Weight
from layouts.codecs import Float32
from layouts.confirm import check_known
from layouts.errors import LayoutError
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout, StoredTensor, to_matrix
from pipeline.checkpoint.protocol import Checkpoint, WeightSource
from pipeline.container.blob import Bytes, read_blob, weight_blob, weight_parts
from pipeline.container.mapped import Blob
from pipeline.decode.weights import Candidate, engine_weights, model_weights
from pipeline.errors import DecodeRefused
from pipeline.refit.outside import outside_sha256
from pipeline.toolchain.kinds import MODEL

NAMES = ("decode", "prefill", "third", "fourth")
MODEL_NAMES = ("main", "second", "third", "fourth")


@dataclass(frozen=True)
class Share:
    """A blob of the engine file, and how many of its bytes belong to tensors of the layout, and are 0 and belong to none."""

    blob: Blob
    explained: int
    zero: int


@dataclass(frozen=True)
class Anchored:
    """A confirmed layout, what became of every tensor, how much of each blob is explained.

    layer : of an engine of kind layer, the layer of the checkpoint whose weights it holds
    corrected : tensor -> elements one step off
    """

    layout: EngineLayout
    layer: int
    findings: list[Finding]
    corrected: dict[str, int]
    shares: list[Share]

    @property
    def missing(self) -> list[Finding]:
        """Tensors of the checkpoint that the layout says nothing of."""
        return [finding for finding in self.findings if finding.stored is None and not finding.beside]


def decode_engine(engine: Path, source: WeightSource) -> Anchored:
    """Find every tensor of a source in an engine, and confirm it.

    Parameters
    ----------
    source : what the engine was compiled from; of a language model that engine is found whose weights these are

    Raises
    ------
    DecodeRefused : no tensor of the source has a layout, or what was found does not hold the weights; names the file
    ContainerError, CheckpointError : files that cannot be read
    """
    blob, place = read_blob(engine), weight_blob(engine)
    try:
        candidate = engine_weights(source, blob) if isinstance(source, Checkpoint) else model_weights(source)
        findings = decode_blob(blob, candidate.weights, MODEL_NAMES if candidate.kind == MODEL else NAMES)
        layout = _layout(candidate, findings, place)
        corrected = check_known(layout, blob, _Reader(layout, candidate.weights))
    except DecodeRefused as error:
        raise error.in_file(engine) from None
    layout = replace(layout, outside=outside_sha256(engine, layout))
    return Anchored(layout, candidate.layer, findings, corrected, _shares(engine, place, blob, layout))


def _layout(candidate: Candidate, findings: list[Finding], place: Blob) -> EngineLayout:
    stored = tuple(finding.stored for finding in findings if finding.stored is not None)
    if not stored:
        reasons = "; ".join(f"{finding.name}: {finding.reason}" for finding in findings[:3])
        raise DecodeRefused(f"no tensor of the checkpoint has a layout ({reasons})")
    try:
        return EngineLayout(candidate.kind, place.name, place.size, stored, place.offset)
    except LayoutError as error:
        raise DecodeRefused(error.reason, where=error.where, expected=error.expected, found=error.found) from error


class _Reader:
    """Known weights as `confirm` reads them: rows of the stored matrix, vectors as one row."""

    def __init__(self, layout: EngineLayout, weights: list[Weight]) -> None:
        self._stored = {stored.name: stored for stored in layout.tensors}
        self._weights = {weight.name: weight for weight in weights}
        self._held: tuple[str, Float32] | None = None

    def __call__(self, name: str, rows: slice) -> Float32:
        weight = self._weights[name]
        if name not in self._stored or weight.array.ndim == 1:
            return weight.array.reshape(1, -1)
        if self._held is None or self._held[0] != name:
            self._held = name, self._matrix(self._stored[name], weight)
        return self._held[1][rows]

    def _matrix(self, stored: StoredTensor, weight: Weight) -> Float32:
        matrix = np.ascontiguousarray(to_matrix(stored, weight.array))
        return matrix * dict(weight.gains)[stored.folded] if stored.folded else matrix


def _shares(engine: Path, place: Blob, blob: Bytes, layout: EngineLayout) -> list[Share]:
    owned = np.zeros(blob.size, np.uint8)
    for stored in layout.tensors:
        mark_tensor(owned, stored, 0)
    shares = []
    for part in weight_parts(engine):
        own = slice(part.offset - place.offset, part.offset - place.offset + part.size)
        zero = int(np.count_nonzero((owned[own] == 0) & (blob[own] == 0)))
        shares.append(Share(part, int(np.count_nonzero(owned[own])), zero))
    return shares
