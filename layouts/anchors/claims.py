"""Which bits of a blob belong to elements already."""

from __future__ import annotations

import numpy as np

from layouts.anchors.scan import Flags
from layouts.digits import Int64


class Claims:
    """Which half bytes of a blob belong to elements already: no two elements stand in one place."""

    def __init__(self, blob_bytes: int) -> None:
        self._taken = np.zeros(2 * blob_bytes, np.bool_)

    def share(self, at: Int64, width: int) -> float:
        """How much of elements at bit addresses is taken."""
        return float(self._taken[self._halves(at, width)].mean())

    def taken(self, at: Int64) -> Flags:
        """Whether the first half byte at bit addresses is taken."""
        taken: Flags = self._taken[at >> 2]
        return taken

    def take(self, at: Int64, width: int) -> None:
        self._taken[self._halves(at, width)] = True

    def copy(self) -> Claims:
        """Claims that can be made without consequence."""
        other = Claims(0)
        other._taken = self._taken.copy()
        return other

    def become(self, other: Claims) -> None:
        self._taken = other._taken

    def _halves(self, at: Int64, width: int) -> Int64:
        halves: Int64 = (at >> 2)[..., None] + np.arange(max(1, width // 4))
        clipped: Int64 = np.clip(halves, 0, len(self._taken) - 1)
        return clipped
