"""Engines of tiny models on the simulator, against a control that knows nothing of engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.names import engine_names
from pipeline.engineset.vendor_config import vendor_files
from pipeline.evaluate.control_quantize import Quantization
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


FLOATS = CompileOptions(kv_cache_len=128, prefill_len=64)
# without corrections a compile is what a refit of the same weights is
WHOLE = replace(FLOATS, corrections=0.0)


def compile_set(folder: Path, config: ModelConfig, options: CompileOptions) -> Path:
    """Engines compiled from the GGUF's own weights: what a refit of the same GGUF must equal."""
    gguf, directory = folder / "tiny.gguf", folder / "set"
    write_tiny_gguf(gguf, config, seed=6, qtype="Q8_0")
    directory.mkdir()
    ReferenceCompiler(open_checkpoint(gguf), directory, options).compile()
    for name, content in vendor_files("tiny", config, engine_names(config, options.prefill_len), None).items():
        (directory / name).write_bytes(content)
    return gguf


MODELS = {
    "llama": (tiny_config("llama"), FLOATS),
    "llama head 48": (tiny_config("llama", head_dim=48), FLOATS),
    "qwen2": (tiny_config("qwen2"), FLOATS),
    "qwen3 head 48": (tiny_config("qwen3", head_dim=48), FLOATS),
    "llama fp32": (tiny_config("llama"), replace(FLOATS, weight_type="fp32")),
    "llama s8": (tiny_config("llama"), replace(WHOLE, weight_type="s8")),
    "qwen2 s8 group/127.5 folded": (
        tiny_config("qwen2"),
        replace(WHOLE, weight_type="s8", post_weight_type="s8", scale_rule="group/127.5", fold_norms=True),
    ),
    "qwen3 s4, head s8 folded": (
        tiny_config("qwen3"),
        replace(WHOLE, weight_type="s4", post_weight_type="s8", fold_norms=True),
    ),
    "llama s4 fp16, head fp32": (
        tiny_config("llama"),
        replace(WHOLE, weight_type="s4", scale_type="fp16", post_weight_type="fp32"),
    ),
    "gemma3": (tiny_config("gemma3"), FLOATS),
    "gemma3 s8 folded": (tiny_config("gemma3"), replace(WHOLE, weight_type="s8", fold_norms=True)),
    "gemma3 s8 row/127.5": (tiny_config("gemma3"), replace(WHOLE, weight_type="s8", scale_rule="row/127.5")),
}


@pytest.mark.parametrize("name", MODELS)
def test_engines_compute_what_the_control_computes(tmp_path: Path, name: str) -> None:
    config, options = MODELS[name]
    gguf = compile_set(tmp_path, config, options)
    windows, targets = cut(TOKENS, 120, 100)
    result = evaluate_set(
        tmp_path / "set",
        Recipe(gguf, Quantization.of(options.as_dict(), "refit")),
        tmp_path / "twin.gguf",
        window=100,
        material=Material(windows, targets, prompts=(tuple(TOKENS[:6]),), questions=(), greedy_tokens=8),
        threads=1,
        open_runner=lambda directory: Runner(directory, library_path()),
    )
    assert result.references["control"].kld_max == pytest.approx(0, abs=1e-12)
    assert result.references["control"].top1_tie_aware == 1
    assert result.greedy == result.control_greedy
    assert 1e-6 < result.references["f32_twin"].kld_mean < (1 if "s4" in name else 0.02)
