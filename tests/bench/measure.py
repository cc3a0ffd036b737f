"""Timing, and one row of the bench's table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One measure. `others` are the same thing done another way, in the same unit and the same run.

    `better` says which way is better, so that a ratio above 1 always means that ours is.
    """

    name: str
    value: float
    unit: str
    others: dict[str, float] = field(default_factory=dict)
    better: str = "lower"

    def ratios(self) -> dict[str, float]:
        """How many times better ours is than each of the others."""
        if self.better == "lower":
            return {name: other / self.value for name, other in self.others.items()}
        return {name: self.value / other for name, other in self.others.items()}

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "better": self.better,
            "others": self.others,
            "ratios": self.ratios(),
        }

    def lines(self) -> list[str]:
        lines = [f"{self.name:<44} {self.value:>14,.4g} {self.unit}"]
        for name, ratio in self.ratios().items():
            lines.append(f"    {name:<40} {self.others[name]:>14,.4g} {self.unit:<12} {ratio:>10.3g} x")
        return lines


def median_seconds(action: Callable[[], object], runs: int = 3, before: Callable[[], object] | None = None) -> float:
    """Median wall-clock seconds; `before` prepares each run and is not timed."""
    found = []
    for _ in range(runs):
        if before is not None:
            before()
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return statistics.median(found)
