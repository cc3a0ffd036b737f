"""Evaluations of sets, kept by the set's identity and the code that measures: a run that was interrupted goes on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.engineset.manifest import read_manifest
from pipeline.files import write_json
from pipeline.hashes import digest
from tests.fidelity.fine_tune import write_fine_tune
from tests.fidelity.negative import fault_distances
from tests.fidelity.sets import Case, build_set, source_of_case
from tests.helpers.sets import ROOT, engineset

LONGEST = 3600
FAULTY_LAYER, FAULTY_POSITIONS = {"smollm2": 14, "gemma3": 8}, 256

MEASURING = ("pipeline/evaluate/*.py", "tests/fidelity/[mn]*.py", "native/*/*.?pp")

Figures = dict[str, Any]


@dataclass(frozen=True)
class Workshop:
    """What is made and kept below `folder`."""

    folder: Path

    def figures(self, case: Case) -> Figures:
        """`engineset evaluate --json` of a case's set, and what its manifest says of clipping."""
        directory = build_set(case, self.folder, self._adapter(case) if case.tuned else None)

        def measure() -> Figures:
            twin = self.folder / f"{case.model}{'-tuned' if case.tuned else ''}-twin.gguf"
            base = ("--base", source_of_case(case, self.folder / "luigi")) if case.own_scales else ()
            done = engineset("evaluate", directory, "--twin", twin, "--json", *base, timeout=LONGEST)
            if not done.stdout:
                raise RuntimeError(f"{case.name} was not evaluated:\n{done.stderr}")
            return {**json.loads(done.stdout), **clipping(directory)}

        return self._kept(f"{directory.name}-figures", measure)

    def faults(self, case: Case) -> Figures:
        """KLD from the control of sets with one fault each."""
        directory, scratch = build_set(case, self.folder), self.folder / "faulty"

        def measure() -> Figures:
            shutil.rmtree(scratch, ignore_errors=True)
            return dict(fault_distances(directory, scratch, FAULTY_POSITIONS, FAULTY_LAYER[case.model]))

        return self._kept(f"{directory.name}-faults", measure)

    def _adapter(self, case: Case) -> Path:
        path = self.folder / "fine-tune.gguf"
        return path if path.is_file() else write_fine_tune(source_of_case(case, self.folder / "luigi"), path)

    def _kept(self, name: str, measure: Callable[[], Figures]) -> Figures:
        path = self.folder / "results" / code_key() / f"{name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, measure())
        figures: Figures = json.loads(path.read_text())
        return figures


@cache
def code_key() -> str:
    """Changes with every file that figures depend on, besides the set itself."""
    files = [path for pattern in MEASURING for path in sorted(ROOT.glob(pattern))]
    return digest([path.read_text() for path in files])[:16]


def clipping(directory: Path) -> Figures:
    """Elements of the set, how many were clipped, and how many tensors have some."""
    engines = read_manifest(directory).engines.values()
    tensors = [tensor for engine in engines for tensor in engine["tensors"].values()]
    clipped = [tensor["clipped"] for tensor in tensors]
    return {"clipped": sum(clipped), "clipped_tensors": sum(map(bool, clipped)), "tensors": len(tensors)}
