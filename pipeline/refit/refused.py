"""Many faults at once: a plan is checked as a whole and refused with one line per fault."""

from __future__ import annotations

from pipeline.errors import MismatchError


class PlanRefusedError(MismatchError):
    """All faults of a plan. `str()` has one line for each."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(f"{len(faults)} faults")
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)

    def __reduce__(self) -> tuple[object, ...]:
        return PlanRefusedError, (self.faults,)
