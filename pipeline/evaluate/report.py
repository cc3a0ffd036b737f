"""The figures of an evaluation, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.evaluate.agreement import Agreement
from pipeline.evaluate.gates import GateResult, Gates, weights_gate
from pipeline.evaluate.known_answers import KnownAnswer
from pipeline.evaluate.metrics import Comparison
from pipeline.evaluate.stored_weights import WeightCheck

TITLES = {"gguf": "GGUF", "f32_twin": "F32 twin", "control": "control"}


@dataclass(frozen=True)
class Answers:
    """One question: what was said, and whether it was right."""

    name: str
    set_text: str
    set_passes: bool
    reference_text: str
    reference_passes: bool

    @classmethod
    def judge(cls, case: KnownAnswer, set_text: str, reference_text: str) -> Answers:
        return cls(case.name, set_text, case.passes(set_text), reference_text, case.passes(reference_text))


@dataclass(frozen=True)
class Evaluation:
    """All figures.

    references : by `f32_twin`, `control`, and `gguf` where no adapter was merged
    greedy, control_greedy : continuations of the set and of the control beside those of the twin; where the control leaves
        the set's, what it would say then is not asked
    weights : of the set beside those of the control; None where the set has no sidecars
    """

    references: Mapping[str, Comparison]
    control_against_twin: Comparison
    greedy: Agreement
    control_greedy: Agreement
    answers: tuple[Answers, ...]
    weights: WeightCheck | None
    seconds: Mapping[str, float]
    gates: Gates

    @property
    def positions(self) -> int:
        return self.references["f32_twin"].positions

    def gate_results(self) -> list[GateResult]:
        """Every gate that has a bound."""
        twin, control, gates = self.references["f32_twin"], self.references["control"], self.gates
        most_of_twin = gates.twin_kld
        if gates.twin_over_control is not None:
            most_of_twin = gates.twin_over_control * self.control_against_twin.kld_mean
        rows = (
            ("f32_twin.kld_mean", twin.kld_mean, most_of_twin, True),
            ("f32_twin.top1_tie_aware", twin.top1_tie_aware, gates.twin_top1_tie_aware, False),
            ("control.kld_mean", control.kld_mean, gates.control_kld, True),
        )
        found = [GateResult(name, value, bound, most) for name, value, bound, most in rows if bound is not None]
        if self.weights is not None and gates.weights:
            found.append(weights_gate(self.weights))
        return found

    def failures(self) -> list[str]:
        """One line for each gate that is not met."""
        return [str(gate) for gate in self.gate_results() if not gate.passed]

    def as_dict(self) -> dict[str, Any]:
        """What `engineset evaluate --json` prints."""
        gates = [{**asdict(gate), "passed": gate.passed} for gate in self.gate_results()]
        return {
            "positions": self.positions,
            "references": {name: _figures(c) for name, c in self.references.items()},
            "ties": self.references["f32_twin"].ties,
            "greedy_agreement": self.greedy.prefix,
            "greedy_exact": self.greedy.exact,
            "greedy_prompts": self.greedy.prompts,
            "control_greedy_agreement": self.control_greedy.prefix,
            "control_greedy_exact": self.control_greedy.exact,
            "known_answers": self._answers(),
            "control_against_f32_twin": _figures(self.control_against_twin),
            "weights": None if self.weights is None else asdict(self.weights),
            "gates": gates,
            "passed": all(gate.passed for gate in self.gate_results()),
            "seconds": dict(self.seconds),
        }

    def _answers(self) -> dict[str, Any]:
        return {
            "set": sum(answer.set_passes for answer in self.answers),
            "reference": sum(answer.reference_passes for answer in self.answers),
            "cases": [asdict(answer) for answer in self.answers],
        }

    def lines(self) -> list[str]:
        """For people."""
        answers, rows = self._answers(), [(f"set / {TITLES[name]}", c) for name, c in self.references.items()]
        rows.append(("control / F32 twin", self.control_against_twin))
        table = [f"{self.positions} positions       mean KLD   top-1  tie-aware  perplexity ratio"]
        table += [
            f"{name:20} {c.kld_mean:9.6f} {c.top1:7.2%} {c.top1_tie_aware:10.2%} {c.ppl_ratio:17.5f}"
            for name, c in rows
        ]
        return [
            *table,
            f"exact ties at the top: {self.references['f32_twin'].ties:.2%}",
            f"greedy: {self.greedy.prefix:.1%} of the leading tokens, {self.greedy.exact} of {self.greedy.prompts} exact"
            f" (control: {self.control_greedy.prefix:.1%}, {self.control_greedy.exact})",
            *self._unjudged_weights(),
            f"known answers: set {answers['set']}, reference {answers['reference']}, of {len(self.answers)}",
            f"{sum(self.seconds.values()):.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
            *(f"{'pass' if gate.passed else 'FAIL'}  {gate}" for gate in self.gate_results()),
        ]

    def _unjudged_weights(self) -> list[str]:
        """Weights that are compared, but not all known."""
        if self.weights is None or self.gates.weights:
            return []
        return [f"weights: {self.weights.equal} of {self.weights.total} equal; the engine's corrections are not known"]


def _figures(comparison: Comparison) -> dict[str, Any]:
    return {**asdict(comparison), "ppl_ratio": comparison.ppl_ratio}
