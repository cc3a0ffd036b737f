"""Models with matrices of one to fifteen columns: one or a few FFN rows, one head of two dimensions, a tiny hidden size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layouts.integers import integer_codec
from layouts.quantize import refit_scales
from layouts.scales import Scales
from pipeline.errors import DecodeRefused
from pipeline.model import ModelConfig
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint, plan_markers
from pipeline.toolchain.options import CompileOptions
from tests.helpers.engines import build_markers, engines_of, true_layouts
from tests.helpers.tiny import tiny_config
from tests.pipeline.toolchain.test_decode_integer_engines import check_same

# (architecture, hidden size, FFN rows, head dimension, heads, vocabulary)
SHAPES = (
    ("llama", 64, 1, 32, 2, 40),
    ("qwen3", 257, 1, 2, 1, 1),
    ("gemma3", 129, 2, 2, 3, 17),
    ("qwen2", 320, 3, 10, 1, 40),
    ("llama", 37, 5, 4, 1, 33),
    ("llama", 8, 7, 2, 1, 300),
)
TYPES: tuple[dict[str, Any], ...] = (
    {"weight_type": "s8", "post_weight_type": "s8", "scale_rule": "row/127"},
    {"weight_type": "s8", "post_weight_type": "s4", "scale_rule": "group/127.5", "fold_norms": True},
    {"weight_type": "s4", "post_weight_type": "s8", "scale_type": "fp16"},
)


@dataclass(frozen=True)
class NarrowCase:
    """A shape, types, and a layout seed; corrections and copies follow from the seed."""

    seed: int
    shape: int
    kind: int

    def __str__(self) -> str:
        return f"seed{self.seed}-{'-'.join(map(str, SHAPES[self.shape]))}-{TYPES[self.kind]['weight_type']}"

    @property
    def config(self) -> ModelConfig:
        architecture, *sizes = SHAPES[self.shape]
        names = ("hidden_size", "intermediate_size", "head_dim", "num_attention_heads", "vocab_size")
        tokens: dict[str, Any] = {"bos_token_id": None, "eos_token_ids": ()}
        return tiny_config(architecture, num_hidden_layers=1, **dict(zip(names, sizes, strict=True)), **tokens)

    @property
    def options(self) -> CompileOptions:
        varied = {"corrections": (0.3, 1.0, 0.0)[self.seed % 3], "prefill_share": (0.4, 1.0)[self.seed % 2]}
        return CompileOptions(kv_cache_len=16, prefill_len=8, layout_seed=self.seed, **varied, **TYPES[self.kind])

    @property
    def plan(self) -> MarkerPlan:
        return plan_markers(self.config, self.options.weight_type, self.options.post_weight_type)


CASES = [
    NarrowCase(7 * kind + shape if shape else 0, shape, kind)
    for shape in range(len(SHAPES))
    for kind in range(len(TYPES))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoded_layout_is_the_true_map(tmp_path: Path, case: NarrowCase) -> None:
    builds = build_markers(tmp_path, case)
    true = true_layouts(marker_checkpoint(case.plan, case.plan.confirm), case.options)
    for kind in KINDS:
        check_same(decode_builds(case.plan, kind, engines_of(builds, case, kind)), true[kind])


def test_rows_that_nothing_tells_apart_are_refused_before_anything_is_compiled() -> None:
    config = tiny_config("llama", hidden_size=2048, head_dim=64, intermediate_size=1)
    with pytest.raises(DecodeRefused, match=r"^mlp.down_proj.weight: too many elements"):
        plan_markers(config, "s8", "bf16")


@pytest.mark.parametrize("hidden", [257, 513, 576, 640, 768, 1024, 1536])
def test_groups_of_a_single_row_have_scales_of_their_own_in_the_confirming_build(hidden: int) -> None:
    """Nothing else tells which of a row's entries is which group's."""
    plan = plan_markers(tiny_config("qwen3", hidden_size=hidden, intermediate_size=1, vocab_size=1), "s8", "s8")
    confirming = marker_checkpoint(plan, plan.confirm)
    scales = Scales("reciprocal", 256, 127.0, shared=False)
    for name in ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"):
        found = refit_scales(confirming.read(name), scales, integer_codec("s8"))
        assert len(np.unique(found)) == found.size == -(-hidden // 256)
