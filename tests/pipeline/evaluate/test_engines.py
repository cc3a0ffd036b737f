"""Engines of tiny models on the simulator, against a control that knows nothing of engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.vendor_config import vendor_files
from pipeline.evaluate.evaluate import evaluate_set
from pipeline.evaluate.material import Material, cut
from pipeline.evaluate.recipe import Recipe
from pipeline.model import ModelConfig
from pipeline.native import Runner
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import ReferenceCompiler
from tests.helpers.simulator import library_path
from tests.helpers.tiny import tiny_config, write_tiny_gguf

TOKENS = np.random.default_rng(8).integers(3, 1000, 121).tolist()


def compile_set(folder: Path, config: ModelConfig) -> Path:
    """Engines compiled from the GGUF's own weights: what a refit of the same GGUF must equal."""
    gguf, directory = folder / "tiny.gguf", folder / "set"
    write_tiny_gguf(gguf, config, seed=6, qtype="Q8_0")
    directory.mkdir()
    options = CompileOptions(kv_cache_len=128, prefill_len=64)
    ReferenceCompiler(open_checkpoint(gguf), directory, options).compile()
    for name, content in vendor_files("tiny", config, options.prefill_len, None).items():
        (directory / name).write_bytes(content)
    return gguf


@pytest.mark.parametrize(
    "config",
    [tiny_config("llama"), tiny_config("llama", head_dim=48), tiny_config("qwen2"), tiny_config("qwen3", head_dim=48)],
    ids=["llama", "llama head 48", "qwen2", "qwen3 head 48"],
)
def test_engines_compute_what_the_control_computes(tmp_path: Path, config: ModelConfig) -> None:
    gguf = compile_set(tmp_path, config)
    windows, targets = cut(TOKENS, 120, 100)
    result = evaluate_set(
        tmp_path / "set",
        Recipe(gguf),
        tmp_path / "twin.gguf",
        window=100,
        material=Material(windows, targets, prompts=(tuple(TOKENS[:6]),), questions=(), greedy_tokens=8),
        threads=1,
        open_runner=lambda directory: Runner(directory, library_path()),
    )
    assert result.references["control"].kld_max == pytest.approx(0, abs=1e-12)
    assert result.references["control"].top1_tie_aware == 1
    assert 1e-6 < result.references["f32_twin"].kld_mean < 0.01
