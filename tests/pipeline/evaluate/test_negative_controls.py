"""The gate on set against control fails for faults of one layer of the real model that leave a set whole and working."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.evaluate.gates import S8_GATES
from pipeline.native import Runner
from tests.fidelity.negative import SOUND, fault_distances
from tests.helpers.sets import BIN, ROOT, run
from tests.helpers.simulator import library_path

pytestmark = pytest.mark.slow


def test_gate_fails_for_every_fault(tmp_path: Path) -> None:
    command = [BIN / "luigi", "--module", "tasks", "BuildEngineSet", "--config", ROOT / "configs/smollm2-135m-s8.toml"]
    done = run([*command, "--build-dir", tmp_path], timeout=600)
    assert done.returncode == 0, done.stderr
    distances = fault_distances(
        tmp_path / "sets/smollm2-135m-s8",
        tmp_path / "faults",
        positions=128,
        layer=14,
        open_runner=lambda directory: Runner(directory, library_path()),
    )
    bound = S8_GATES.control_kld
    assert bound is not None
    assert distances.pop(SOUND) <= bound
    assert len(distances) == 4
    assert all(kld > bound for kld in distances.values()), distances
