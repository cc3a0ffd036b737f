"""Bounds on the figures of an evaluation, by the types of the engines' weights (docs/evaluation.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.evaluate.recipe import Recipe
from pipeline.evaluate.stored_weights import WeightCheck


@dataclass(frozen=True)
class Gates:
    """Bounds; None where there is none.

    twin_kld, control_kld : most mean KL divergence (nats) from the F32 twin and from the control
    twin_over_control : most KL divergence from the F32 twin, in parts of the control's; instead of `twin_kld`
    twin_top1_tie_aware : least tie-aware share of equal most likely tokens, against the twin
    weights : every stored weight must be the control's
    """

    twin_kld: float | None = None
    twin_over_control: float | None = None
    twin_top1_tie_aware: float | None = None
    control_kld: float | None = None
    weights: bool = True


BF16_GATES = Gates(twin_kld=0.0015, twin_top1_tie_aware=0.99, control_kld=0.0005)
S8_GATES = Gates(twin_kld=0.008, twin_top1_tie_aware=0.96, control_kld=0.001)
S4_GATES = Gates(twin_over_control=1.05, control_kld=0.001)


def gates_of(recipe: Recipe) -> Gates:
    """The gates of the coarsest weights that a set has. Where some of them are not known, a control does not bound anything."""
    types = {recipe.how.weight_type, recipe.how.head_type}
    gates = S4_GATES if "s4" in types else S8_GATES if "s8" in types else BF16_GATES
    return gates if recipe.exact else replace(gates, control_kld=None, weights=False)


@dataclass(frozen=True)
class GateResult:
    """One gate: `measured` must be on the right side of `bound`. NaN never is. `text` instead of the two numbers."""

    name: str
    measured: float
    bound: float
    at_most: bool
    text: str = ""

    @property
    def passed(self) -> bool:
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    def __str__(self) -> str:
        if self.text:
            return f"{self.name}: {self.text}"
        sign = "<=" if self.at_most else ">="
        return f"{self.name} = {self.measured:.6f} {'is' if self.passed else 'is not'} {sign} {self.bound:.6g}"


def weights_gate(weights: WeightCheck) -> GateResult:
    """All tensors must be equal."""
    text = f"{weights.equal} of {weights.total} equal" + (f"; {weights.first}" if weights.first else "")
    return GateResult("control.weights", weights.equal, weights.total, False, text)
