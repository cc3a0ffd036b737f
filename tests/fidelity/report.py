"""`docs/fidelity.md` out of the figures: the same text for the same figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.evaluate.gates import S8_GATES
from tests.fidelity.fine_tune import MODULES, MOST, RANK, SHARE
from tests.fidelity.measure import FAULTY_LAYER, FAULTY_POSITIONS
from tests.fidelity.negative import SOUND
from tests.fidelity.sets import CASES, TUNED, Case

Figures = Mapping[str, Any]
Results = Mapping[str, Figures]

HEAD = """# Fidelity

Written by `make fidelity` (`tests/fidelity`), which builds the sets, evaluates them and makes the faulty ones; what every figure
means stands in [evaluation.md](evaluation.md). All of it was computed by the reference engines on the simulator. **Nothing here
has been run on hardware**: an NPU sums in its own order and its own precision, and its figures will differ.

## Sets

Mean KL divergence in nats, tie-aware top-1 and ratio of perplexities against the F32 twin. Heads: s8 in SmolLM2's s8
sets, bf16 in the others.
"""

SMALL = """
Greedy agreement has no gate. A model this small drifts by itself: after one near-tie that falls the other way the rest of a
continuation is another text, and the control, which has no fault that an engine could add, drifts exactly as far.

**Round-to-nearest s4 ruins models this small.** The s4 sets carry their weights to the bit and still lose much of the model. The
format does that and not the engine: the control, which has the same integers, is as far from the twin. `search` helps and does
not mend it. A model of this size that has to run in 4 bits needs calibration or training for it, which is not done here.
"""

FAULTS = f"""
## Faults that the gate must see

KLD of a set from the control of its true source, {FAULTY_POSITIONS} positions; the gate is at most {S8_GATES.control_kld}. Each
fault is in one layer (two for the swap) and leaves a set that loads and runs.
"""

TUNE = f"""
## A fine-tune is carried, and old scales ruin it

SmolLM2-135M plus a seeded low-rank change: rank {RANK}, {" and ".join(MODULES)} of every layer; for each rank one element in
{SHARE:.0%} of the rows becomes 1 to {MOST:g} times as large as the row's largest was. It is merged as a LoRA adapter and refitted
twice into the same s8 template, which was compiled from SmolLM2 itself: with new scales (`refit`) and with the engine's own
(`engine`). Each is compared with the F32 twin of the fine-tuned model. With `refit` it is about as far from that as the base set
is from its own; the raised rows have coarser scales now, and that is the difference. `engine` fails the gates of an s8 set, as it
should, and the report of the build says why: clipped elements.
"""


def document(results: Results) -> str:
    """The whole page.

    Parameters
    ----------
    results : name of a case -> figures of `Workshop.figures`; with `faults` behind it, those of `Workshop.faults`
    """
    tuned = [CASES[1], *TUNED]
    lines = [*HEAD.splitlines(), *_sets(results), *SMALL.splitlines(), *_search(results)]
    lines += [*FAULTS.splitlines(), "", *_faults(results), *TUNE.splitlines(), "", *_tuned(tuned, results)]
    return "\n".join(lines) + "\n"


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _table(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield "|---" * len(titles) + "|"


def _sets(results: Results) -> Iterator[str]:
    yield ""
    yield from _table(
        "set",
        "positions",
        "weights equal",
        "KLD control",
        "KLD twin",
        "top-1",
        "perplexity",
        "greedy",
        "control's greedy",
        "gates",
    )
    for case in CASES:
        found = results[case.name]
        twin, weights = found["references"]["f32_twin"], found["weights"]
        yield _row(
            case.title,
            found["positions"],
            f"{weights['equal']} of {weights['total']}",
            f"{found['references']['control']['kld_mean']:.6f}",
            f"{twin['kld_mean']:.6f}",
            f"{twin['top1_tie_aware']:.2%}",
            f"x {twin['ppl_ratio']:.4f}",
            f"{found['greedy_agreement']:.1%}",
            f"{found['control_greedy_agreement']:.1%}",
            "pass" if found["passed"] else "FAIL",
        )


def search_gain(results: Results) -> float:
    """By how much `search` lowers the KLD of s4."""
    refit, search = (
        results[name]["references"]["f32_twin"]["kld_mean"] for name in ("smollm2-135m-s4", "smollm2-135m-s4-search")
    )
    return float(1 - search / refit)


def _search(results: Results) -> Iterator[str]:
    yield ""
    yield f"`search` lowers the KLD of s4 by {search_gain(results):.1%}; at least 15 % are asked for."


def _faults(results: Results) -> Iterator[str]:
    cases = [case for case in CASES if f"{case.name} faults" in results]
    yield from _table("fault", *(f"{case.title}, layer {FAULTY_LAYER[case.model]}" for case in cases))
    names = dict.fromkeys(name for case in cases for name in results[f"{case.name} faults"])
    for name in names:
        found = [results[f"{case.name} faults"].get(name) for case in cases]
        yield _row(name, *("" if kld is None else f"{kld:.6f}" for kld in found))


def faults_seen(results: Results) -> bool:
    """Whether the gate passes every sound set and fails for every fault."""
    bound = S8_GATES.control_kld
    faults = [faults for name, faults in results.items() if name.endswith(" faults")]
    return all((kld <= bound) == (name == SOUND) for found in faults for name, kld in found.items())


def _tuned(cases: list[Case], results: Results) -> Iterator[str]:
    yield from _table("set", "KLD twin", "top-1", "perplexity", "clipped elements", "in tensors", "gates")
    for case in cases:
        found = results[case.name]
        twin = found["references"]["f32_twin"]
        yield _row(
            case.title,
            f"{twin['kld_mean']:.6f}",
            f"{twin['top1_tie_aware']:.2%}",
            f"x {twin['ppl_ratio']:.4f}",
            found["clipped"],
            f"{found['clipped_tensors']} of {found['tensors']}",
            "pass" if found["passed"] else "FAIL",
        )
