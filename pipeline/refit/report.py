"""What became of the weights of one engine: the part of a manifest that a refit writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from layouts.encoding import decode_rows
from layouts.stored import StoredTensor
from pipeline.refit.choose import Chosen, Given


@dataclass
class TensorReport:
    """What became of one weight.

    codec, copies : how it is stored, and the names of the places
    sources : the source tensors that it is made of
    scales : how its scales were chosen, "" for floats
    elements, absent : of the weight, and how many of them the engine has no place for
    max_error : the largest absolute difference between given and stored value
    clipped : elements beyond what the scale can say
    corrected_kept : stored integers that are the engine's own, one step from the new ones
    stored_sha256 : `choose.stored_digest` where the engine's own scales were kept: nothing else says what they were
    """

    codec: str
    copies: tuple[str, ...]
    sources: tuple[str, ...] = ()
    scales: str = ""
    elements: int = 0
    absent: int = 0
    max_error: float = 0.0
    clipped: int = 0
    corrected_kept: int = 0
    stored_sha256: str = ""

    def add(self, stored: StoredTensor, given: Given, chosen: Chosen) -> None:
        """Count rows that have been written; what is absent from the first copy is not looked at."""
        above = decode_rows(stored, chosen.encoded).astype(np.float64)
        above -= given.values
        for window in stored.copies[0].absent_windows(given.first, given.first + len(above)):
            above[window] = 0
            self.absent += above[window].size
        self.elements += above.size
        self.max_error = max(self.max_error, float(above.max(initial=0.0)), -float(above.min(initial=0.0)))
        self.clipped += chosen.encoded.clipped
        self.corrected_kept += chosen.corrected_kept


@dataclass
class EngineReport:
    """A committed engine: bytes that the planned spans own, bytes in them that changed, and one report per weight."""

    planned_bytes: int = 0
    changed_bytes: int = 0
    tensors: dict[str, TensorReport] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def clipped_tensors(engines: Mapping[str, Any]) -> dict[str, int]:
    """`engine file: tensor` -> its clipped elements, most first; only tensors that have some.

    Parameters
    ----------
    engines : engine file -> its report as a dict, as in a manifest
    """
    counts = {
        f"{file}: {name}": int(tensor["clipped"])
        for file, report in engines.items()
        for name, tensor in report["tensors"].items()
        if tensor["clipped"]
    }
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
