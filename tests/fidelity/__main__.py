"""`python -m tests.fidelity`: builds and evaluates every set, writes `docs/fidelity.md` and `build/fidelity.json`.

Exit code 1 when something is not as it must be.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from pipeline.files import write_bytes, write_json
from tests.fidelity.measure import Figures, Workshop
from tests.fidelity.report import document, faults_seen, search_gain
from tests.fidelity.sets import CASES, TUNED
from tests.helpers.sets import ROOT

FAULTY = ("smollm2-135m-s8", "gemma3-270m-s8")
LEAST_SEARCH_GAIN = 0.15


def main() -> int:
    started, workshop, results = time.monotonic(), Workshop(ROOT / "build" / "fidelity"), dict[str, Figures]()
    steps: list[tuple[str, Callable[[], Figures]]] = []
    for case in (*CASES, *TUNED):
        steps.append((case.name, lambda case=case: workshop.figures(case)))
        if case.name in FAULTY:
            steps.append((f"{case.name} faults", lambda case=case: workshop.faults(case)))
    for name, measure in steps:
        begun = time.monotonic()
        results[name] = measure()
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    write_json(ROOT / "build" / "fidelity.json", results)
    write_bytes(ROOT / "docs" / "fidelity.md", document(results).encode())
    failures = [line for line, bad in judgements(results) if bad]
    print("\n".join(["docs/fidelity.md", f"{time.monotonic() - started:.0f} s", *failures]))
    return 1 if failures else 0


def judgements(results: dict[str, Figures]) -> list[tuple[str, bool]]:
    """What must hold, and whether it does not."""
    refit, engine = (results[case.name] for case in TUNED)
    return [
        *((f"{case.name}: a gate is not met", not results[case.name]["passed"]) for case in CASES),
        ("search does not lower the KLD of s4 by 15 %", search_gain(results) < LEAST_SEARCH_GAIN),
        ("a fault passes the gate, or a sound set does not", not faults_seen(results)),
        ("the fine-tune with new scales does not meet the gates", not refit["passed"]),
        (
            "the fine-tune with old scales meets the gates, or nothing was clipped",
            engine["passed"] or not engine["clipped"],
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
