"""The pieces of `make fidelity` that need no real model."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.config import load_config
from tests.fidelity.__main__ import FAULTY, judgements
from tests.fidelity.fine_tune import MOST, SHARE, raised_maxima
from tests.fidelity.mutants import mutants
from tests.fidelity.negative import SOUND
from tests.fidelity.report import document
from tests.fidelity.sets import CASES, TUNED, Case, write_config
from tests.helpers.tiny import tiny_config


@pytest.mark.parametrize("case", [*CASES, *TUNED], ids=lambda case: case.name)
def test_every_config_is_one(tmp_path: Path, case: Case) -> None:
    config = load_config(write_config(case, tmp_path))
    assert config.name == case.name
    for _, new in case.changes:
        key, value = new.split(" = ")
        held = getattr(config, key, None) or getattr(config.templates, key)
        assert f'"{held}"' == value
    assert (config.templates.checkpoint is not None) == case.tuned


def test_a_change_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not say"):
        write_config(Case("a", "A", "smollm2-135m-s8", (('scales = "none"', 'scales = "search"'),)), tmp_path)


def test_the_fine_tune_raises_maxima_up_to_three_times() -> None:
    checkpoint = NoiseCheckpoint(tiny_config("llama"), 1)
    factors = raised_maxima(checkpoint)
    assert len(factors) == 4
    for name, (up, down) in factors.items():
        values = checkpoint.read(name)
        before, after = (np.abs(rows).max(axis=1) for rows in (values, values + up @ down))
        raised = after > before * 1.0001
        assert (after <= before * MOST * 1.0001).all()
        assert 0.5 * SHARE < raised.mean() < 3 * SHARE
        assert (after / before).max() > 2


def test_each_mutant_changes_its_layers_alone() -> None:
    base = NoiseCheckpoint(tiny_config("gemma3", num_hidden_layers=3, num_key_value_heads=5), 1)
    found = mutants(base, 1)
    assert len(found) == 5
    for mutant in found:
        other = mutant.change(base)
        changed = [name for name in base.names() if not np.array_equal(base.read(name), other.read(name))]
        assert {int(name.split(".")[2]) for name in changed} == set(mutant.layers), mutant.name
        part = other.read(changed[0], slice(0, 3))
        assert np.array_equal(part, other.read(changed[0])[:3])


def results() -> dict[str, Any]:
    twin = {"kld_mean": 0.004, "top1_tie_aware": 0.98, "ppl_ratio": 1.01}
    figures = {
        "references": {"f32_twin": twin, "control": {"kld_mean": 0.0}},
        "weights": {"equal": 9, "total": 9},
        "positions": 1024,
        "greedy_agreement": 0.5,
        "control_greedy_agreement": 0.5,
        "passed": True,
        "clipped": 0,
        "clipped_tensors": 0,
        "tensors": 9,
    }
    made: dict[str, Any] = {case.name: copy.deepcopy(figures) for case in (*CASES, *TUNED)}
    made["smollm2-135m-s4"]["references"]["f32_twin"]["kld_mean"] = 0.6
    made["smollm2-135m-s4-search"]["references"]["f32_twin"]["kld_mean"] = 0.4
    made[TUNED[1].name] |= {"passed": False, "clipped": 7}
    return made | {f"{name} faults": {SOUND: 0.0, "one norm dropped": 1.5} for name in FAULTY}


def failing(found: dict[str, Any]) -> list[str]:
    return [line for line, bad in judgements(found) if bad]


def test_the_page_is_the_same_for_the_same_figures() -> None:
    assert document(results()) == document(results())
    assert "lowers the KLD of s4 by 33.3%" in document(results())
    assert max(map(len, document(results()).splitlines())) < 200
    assert failing(results()) == []


def test_what_does_not_hold_is_said() -> None:
    found = results()
    found["smollm2-135m-s4-search"]["references"]["f32_twin"]["kld_mean"] = 0.52
    found["gemma3-270m-s8 faults"]["one norm dropped"] = 0.0009
    found["gemma3-270m-s8"]["passed"] = False
    found[TUNED[0].name]["passed"] = False
    found[TUNED[1].name]["clipped"] = 0
    assert len(failing(found)) == 5
