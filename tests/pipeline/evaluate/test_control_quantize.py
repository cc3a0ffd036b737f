"""Two implementations of docs/quantization.md, written apart: the control's and that of `layouts`."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layouts.encoding import CHOICES
from layouts.integers import integer_codec
from layouts.quantize import dequantize, quantize
from pipeline.errors import CheckpointError
from pipeline.evaluate.control_adapter import read_adapter
from pipeline.evaluate.control_quantize import Quantization
from pipeline.toolchain.options import CompileOptions
from tests.helpers.adapters import adapter_factors, write_peft_adapter
from tests.helpers.tiny import tiny_config, write_tiny_gguf

RULES = [("s8", rule, "bf16") for rule in ("row/127", "row/127.5", "group/127", "group/127.5")]
RULES += [("s4", "row/127", scale_type) for scale_type in ("bf16", "fp16")]
SHAPES = [(1, 1), (7, 36), (7, 128), (7, 129), (33, 257), (15, 600)]


def matrix(shape: tuple[int, int]) -> np.ndarray:
    """Rows of sizes far apart, one of zeros, one of equal magnitudes, one whose quotient is exact, ties to even."""
    rng = np.random.default_rng(shape[1])
    values = rng.standard_normal(shape) * rng.choice([1e-3, 0.1, 30], (shape[0], 1))
    if shape[0] > 4:
        values[1] = 0
        values[2] = rng.choice([-0.5, 0.5], shape[1])
        values[3] = rng.integers(-255, 256, shape[1]) / 2
        values[3, 0] = 127.5
        values[4] = -0.0
    return values.astype(np.float32)


@pytest.mark.parametrize("mode", ["refit", "search"])
@pytest.mark.parametrize(("kind", "rule", "scale_type"), RULES)
def test_the_control_quantizes_as_the_refit_does(kind: str, rule: str, scale_type: str, mode: str) -> None:
    options = CompileOptions(weight_type=kind, scale_rule=rule, scale_type=scale_type)
    scales, codec = options.scales(kind), integer_codec(kind)
    assert scales is not None
    for shape in SHAPES:
        values = matrix(shape)
        held = CHOICES[mode](values, scales, codec)
        expected = dequantize(quantize(values, held, scales, codec)[0], held, scales)
        found = Quantization.of(options.as_dict(), mode).quantized(values, kind)
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), shape


def test_an_engines_own_scales_and_integers_within_a_step_are_kept() -> None:
    base = np.array([[127, 10, -20, 3]], np.float32)
    tuned = np.array([[127, 10.9, -22.4, 300]], np.float32)
    assert Quantization("s8", scales="engine").quantized(tuned, "s8", base).tolist() == [[127, 10, -22, 127]]


def test_floats_are_stored_as_the_flags_say() -> None:
    values = np.array([1 + 2**-8 + 2**-16, -3.0, 1 / 3], np.float32)
    nearest, truncated = (
        Quantization(rounding=rounding).stored(values, "bf16") for rounding in ("nearest", "truncate")
    )
    assert nearest.dtype == truncated.dtype == ml_dtypes.bfloat16
    assert nearest.astype(np.float32)[0] == 1 + 2**-7
    assert truncated.astype(np.float32)[0] == 1
    assert Quantization().stored(values, "fp32") is values


def test_head_follows_the_layers_unless_they_are_integers() -> None:
    assert Quantization("fp32").head_type == "fp32"
    assert Quantization("s4").head_type == "bf16"
    assert Quantization("s4", post_weight_type="s8").head_type == "s8"


@pytest.mark.parametrize(
    ("settings", "modules", "reason"),
    [({"rank_pattern": {"q_proj": 2}}, ("k_proj",), "rank_pattern"), ({}, ("embed_tokens",), "of layers only")],
)
def test_an_adapter_that_the_control_does_not_know_is_refused(
    tmp_path: Path, settings: dict[str, object], modules: tuple[str, ...], reason: str
) -> None:
    config = tiny_config("llama")
    write_tiny_gguf(tmp_path / "tiny.gguf", config, 1)
    adapter = write_peft_adapter(tmp_path / "adapter", adapter_factors(config, modules), **settings)
    with pytest.raises(CheckpointError, match=reason):
        read_adapter(adapter, 1.0, tmp_path / "tiny.gguf")
