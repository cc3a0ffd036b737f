"""A weight that an engine cannot hold is named as the source calls it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.errors import NotFiniteError
from pipeline.refit.plan import plan_engine
from pipeline.refit.refit import refit_engine
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.engines import true_layouts
from tests.helpers.tiny import tiny_config, tiny_weights, write_gguf

CONFIG = tiny_config("llama", num_hidden_layers=1, vocab_size=64, intermediate_size=96)
OPTIONS = CompileOptions(kv_cache_len=32, prefill_len=8, layout_seed=3)
TOO_LARGE = 3.4e38


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    compile_model(NoiseCheckpoint(CONFIG, 1), folder, OPTIONS)
    return folder / "llama_p8_l0_together.axmodel"


# row 1 of a head in HF order is row 2 of the GGUF, whose rows are interleaved
@pytest.mark.parametrize(
    ("name", "where", "line"),
    [
        ("mlp.up_proj.weight", (3, 4), "blk.0.ffn_up.weight: element [3, 4]"),
        ("self_attn.q_proj.weight", (65, 7), "blk.0.attn_q.weight: element [66, 7]"),
        ("input_layernorm.weight", (5,), "blk.0.attn_norm.weight: element [5]"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_float_beyond_bf16_names_the_source(
    template: Path, tmp_path: Path, name: str, where: tuple[int, ...], line: str, sign: int
) -> None:
    weights = tiny_weights(CONFIG, 2)
    weights[f"model.layers.0.{name}"][where] = sign * TOO_LARGE
    write_gguf(tmp_path / "tiny.gguf", CONFIG, weights)
    layout = true_layouts(NoiseCheckpoint(CONFIG, 1), OPTIONS)["layer"]
    source = GgufCheckpoint(tmp_path / "tiny.gguf")
    with pytest.raises(NotFiniteError) as caught:
        refit_engine(template, layout, plan_engine(CONFIG, "layer"), source, tmp_path / "out.axmodel")
    found = float(np.float32(sign * TOO_LARGE))
    assert str(caught.value) == f"{tmp_path / 'tiny.gguf'}: {line} does not fit bf16 (found {found})"
    assert not (tmp_path / "out.axmodel").exists()
