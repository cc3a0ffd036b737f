"""What a source gives for each weight of one engine, as the engine's matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layouts.stored import EngineLayout, StoredTensor, to_matrix
from pipeline.checkpoint.protocol import Float32, WeightSource
from pipeline.errors import MismatchError
from pipeline.refit.choose import Given, bias_name, row_steps
from pipeline.refit.plan import Assignment, EnginePlan, read_assigned


class AssignedWeights:
    """The source's weights under the engine's names.

    Parameters
    ----------
    plan : has every tensor of the layout, and every bias that goes into bias entries
    layout : says which of them are arrays of more axes; these are read whole, one at a time

    Raises MismatchError for a plan of other weights than the layout's.
    """

    def __init__(self, source: WeightSource, plan: EnginePlan, layout: EngineLayout) -> None:
        self.source, self.plan, self.layout = source, plan, layout
        self._assignments = {item.tensor: item for item in plan.assignments}
        self._held: tuple[str, Float32] | None = None
        wanted = {*layout.names(), *filter(None, map(bias_name, layout.tensors))}
        if apart := sorted(wanted ^ set(self._assignments)):
            reason = f"plan and layout differ in weights: {', '.join(apart)}"
            raise MismatchError(reason, file=source.path, where=f"engine of the kind {plan.kind}")

    def assignment(self, name: str) -> Assignment:
        """Of a tensor of the layout, or of a bias of one."""
        return self._assignments[name]

    def sources(self, stored: StoredTensor) -> tuple[str, ...]:
        """The source's tensors that a weight and its bias entries are made of."""
        bias = bias_name(stored)
        parts = [self.assignment(stored.name), *([self.assignment(bias)] if bias else [])]
        return tuple(source for part in parts for source in part.sources)

    def read(self, name: str, rows: slice) -> Float32:
        """Rows of a tensor of the layout, or of a bias of one: float32 `[rows, cols]`, a vector as one row."""
        assignment = self.assignment(name)
        if name not in self.layout.names():
            return self.source.read(assignment.sources[0]).reshape(1, -1)[rows]
        stored = self.layout[name]
        if stored.dims:
            return self._matrix(stored)[rows]
        values = read_assigned(self.source, assignment, rows)
        return np.pad(values, ((0, 0), (0, stored.padding))) if stored.padding else values

    def ranges(self, stored: StoredTensor) -> Iterator[Given]:
        """A weight by consecutive ranges of its rows."""
        bias = self.read(bias_name(stored), slice(None)).reshape(-1) if bias_name(stored) else None
        for rows in row_steps(stored.shape):
            yield Given(rows.start, self.read(stored.name, rows), None if bias is None else bias[rows])

    def _matrix(self, stored: StoredTensor) -> Float32:
        if self._held is None or self._held[0] != stored.name:
            self._held = stored.name, to_matrix(stored, self.source.read(self.assignment(stored.name).sources[0]))
        return self._held[1]
