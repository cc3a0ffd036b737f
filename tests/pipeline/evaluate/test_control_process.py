from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pipeline.errors import CheckpointError, RunnerError
from pipeline.evaluate.control import Control
from pipeline.evaluate.control_process import control_logits
from tests.helpers.tiny import tiny_config, write_tiny_gguf

WINDOWS = ((5, 17, 200), (3,), (999, 42, 8, 8))


def test_logits_are_the_controls(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), 1)
    found = control_logits(tmp_path / "tiny.gguf", WINDOWS)
    assert found.dtype == ml_dtypes.bfloat16
    control = Control(tmp_path / "tiny.gguf")
    assert np.array_equal(found.astype(np.float32), np.concatenate([control.logits(window) for window in WINDOWS]))


def test_refusal_of_the_control_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no GGUF at all, whatever its name is")
    with pytest.raises(CheckpointError) as caught:
        control_logits(tmp_path / "text.gguf", WINDOWS)
    assert str(caught.value).startswith(f"{tmp_path / 'text.gguf'}: ")
    assert str(caught.value).count("text.gguf") == 1


def test_process_that_ends_otherwise_is_said(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tiny_config("llama"), 1)
    with pytest.raises(RunnerError, match=r"tiny\.gguf: the control ended: IndexError"):
        control_logits(tmp_path / "tiny.gguf", [[1_000_000]])
