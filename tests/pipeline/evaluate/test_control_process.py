from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pipeline.errors import CheckpointError, RunnerError
from pipeline.evaluate.control import Control
from pipeline.evaluate.control_process import Task, run_control
from pipeline.evaluate.recipe import Recipe
from tests.helpers.tiny import tiny_config, write_tiny_gguf

WINDOWS = ((5, 17, 200), (3,), (999, 42, 8, 8))


def test_logits_are_the_controls(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), 1)
    found, answer = run_control(Task(Recipe(tmp_path / "tiny.gguf"), WINDOWS, [[5, 17, 200]], [2]), tmp_path / "logits")
    assert found.dtype == ml_dtypes.bfloat16
    control = Control(tmp_path / "tiny.gguf")
    assert np.array_equal(found.astype(np.float32), np.concatenate([control.logits(window) for window in WINDOWS]))
    assert answer.best == [control.logits([5, 17, 200]).argmax(axis=1).tolist()[1:]]
    assert answer.weights is None


def test_refusal_of_the_control_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no GGUF at all, whatever its name is")
    with pytest.raises(CheckpointError) as caught:
        run_control(Task(Recipe(tmp_path / "text.gguf"), WINDOWS), tmp_path / "logits")
    assert str(caught.value).startswith(f"{tmp_path / 'text.gguf'}: ")
    assert str(caught.value).count("text.gguf") == 1


def test_process_that_ends_otherwise_is_said(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), 1)
    with pytest.raises(RunnerError, match=r"tiny\.gguf: the control ended: IndexError"):
        run_control(Task(Recipe(tmp_path / "tiny.gguf"), [[1_000_000]]), tmp_path / "logits")
