"""Merged adapters: against llama.cpp's own application, against NumPy, both formats alike, by any range of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.kept import keep_rows
from pipeline.checkpoint.lora import adapter_files, merge_adapter
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, locate
from pipeline.errors import NotFiniteError
from pipeline.evaluate.llama import LlamaModel
from pipeline.model import EMBEDDING, HEAD, ModelConfig
from pipeline.tokenizer.source import source_tokenizer
from tests.helpers.adapters import PROJECTIONS, adapter_factors, write_gguf_adapter, write_peft_adapter
from tests.helpers.tiny import tiny_config, write_gguf, write_tiny_gguf, write_tiny_hf

ALL = (*PROJECTIONS, "embed_tokens", "lm_head")
SMALL = {"hidden_size": 32, "intermediate_size": 40, "vocab_size": 20, "head_dim": 8, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2}
Q = "model.layers.1.self_attn.q_proj.weight"


class AdaptedModel(LlamaModel):
    """llama.cpp with an adapter that it applies itself."""

    def __init__(self, path: Path, adapter: Path, scale: float) -> None:
        super().__init__(path, n_ctx=64)
        init, pointer = self._lib.llama_adapter_lora_init, ctypes.c_void_p
        init.restype, init.argtypes = pointer, [pointer, ctypes.c_char_p]
        self._lib.llama_set_adapters_lora.argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
        self._adapters = (pointer * 1)(init(self._model, str(adapter).encode()))
        assert self._adapters[0]
        self._scales = (ctypes.c_float * 1)(scale)

    @contextmanager
    def _context(self, sequences: int, cells: int) -> Iterator[int]:
        with super()._context(sequences, cells) as context:
            assert self._lib.llama_set_adapters_lora(context, self._adapters, 1, self._scales) == 0
            yield context


def weights_of(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    return {name: checkpoint.read(name) for name in checkpoint.names()}


@pytest.mark.parametrize("arch", ["llama", "qwen3", "gemma3"])
@pytest.mark.parametrize("module", [ALL, ("q_proj", "k_proj"), ("embed_tokens",), ("lm_head",)], ids="+".join)
def test_logits_equal_llama_with_its_own_adapter(tmp_path: Path, arch, module):
    config = tiny_config(arch, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
    write_tiny_gguf(tmp_path / "base.gguf", config, 1)
    write_gguf_adapter(tmp_path / "a.gguf", config, adapter_factors(config, module), alpha=6.0)
    merged = merge_adapter(GgufCheckpoint(tmp_path / "base.gguf"), tmp_path / "a.gguf", 1.5)
    write_gguf(tmp_path / "merged.gguf", config, weights_of(merged))
    tokens = list(range(5, 45))
    with AdaptedModel(tmp_path / "base.gguf", tmp_path / "a.gguf", 1.5) as model:
        expected = model.logits(tokens)
    with LlamaModel(tmp_path / "merged.gguf", 64) as model:
        found = model.logits(tokens)
    with LlamaModel(tmp_path / "base.gguf", 64) as model:
        change = np.abs(model.logits(tokens) - expected).max()
    assert change > 0.3
    assert np.abs(found - expected).max() < 2e-4 * max(1, np.abs(expected).max())


def check_values(base: Checkpoint, merged: Checkpoint, factors, weight: float) -> None:
    factor = np.float64(np.float32(weight))
    for name in base.names():
        expected = base.read(name)
        if name in factors:
            up, down = (half.astype(np.longdouble) for half in factors[name])
            exact = expected + np.longdouble(factor) * (up @ down)
            found = merged.read(name)
            # one rounding to float32: half a unit in the last place, and the float64 sum's own
            assert np.all(np.abs(found - exact) <= np.spacing(np.abs(found)) * np.longdouble(0.5001))
            assert not np.array_equal(found, expected) and merged.type_name(name).endswith("+ LoRA")
        else:
            np.testing.assert_array_equal(merged.read(name), expected, strict=True)
            assert merged.type_name(name) == base.type_name(name)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "gemma3"])
def test_both_formats_on_both_kinds_of_base(tmp_path: Path, arch):
    config = tiny_config(arch, **SMALL)
    write_tiny_gguf(tmp_path / "m.gguf", config, 1)
    write_tiny_hf(tmp_path / "hf", config, 1)
    factors = adapter_factors(config, ALL)
    adapters = [
        write_gguf_adapter(tmp_path / "a.gguf", config, factors),
        write_peft_adapter(tmp_path / "peft", factors),
    ]
    for base in (GgufCheckpoint(tmp_path / "m.gguf"), HfCheckpoint(tmp_path / "hf")):
        first, second = (merge_adapter(base, adapter, 0.75) for adapter in adapters)
        assert first.config == second.config == base.config and first.path == base.path
        check_values(base, first, factors, 0.75 * 8 / 4)
        for name in base.names():
            assert first.shape(name) == base.shape(name)
            np.testing.assert_array_equal(first.read(name), second.read(name), strict=True)


@pytest.mark.parametrize("adapter", ["gguf", "peft"])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(3, 5), slice(7, 19), slice(5, 99), slice(8, 8), slice(-2, None)])
def test_ranges_of_rows_equal_the_whole(tmp_path: Path, adapter, rows, monkeypatch):
    config = tiny_config(**SMALL)
    write_tiny_gguf(tmp_path / "m.gguf", config, 1)
    factors = adapter_factors(config, ALL, rank=7)
    path = tmp_path / "a"
    write_gguf_adapter(path, config, factors) if adapter == "gguf" else write_peft_adapter(path, factors)
    merged = merge_adapter(GgufCheckpoint(tmp_path / "m.gguf"), path, 1.0)
    whole = {name: merged.read(name) for name in (Q, EMBEDDING.name, HEAD.name)}
    monkeypatch.setattr("pipeline.checkpoint.lora_pair.CHUNK_ELEMENTS", 100)
    for name, values in whole.items():
        np.testing.assert_array_equal(merged.read(name, rows), values[rows], strict=True)
        assert merged.read(name, rows).flags.c_contiguous


@pytest.mark.parametrize("qtype", ["F16", "BF16", "Q8_0", "Q4_1"])
def test_quantized_gguf_factors(tmp_path: Path, qtype):
    config = tiny_config(**(SMALL | {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}))
    base = NoiseCheckpoint(config, 1)
    factors = adapter_factors(config, PROJECTIONS, rank=32)
    write_gguf_adapter(tmp_path / "a.gguf", config, factors, qtype=qtype)
    found = merge_adapter(base, tmp_path / "a.gguf", 1.0).read(Q)
    write_gguf_adapter(tmp_path / "f32.gguf", config, factors)
    exact = merge_adapter(base, tmp_path / "f32.gguf", 1.0).read(Q)
    assert 0 < np.abs(found - exact).max() < np.abs(exact - base.read(Q)).max() / 5


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_peft_factors_of_16_bits(tmp_path: Path, dtype):
    config = tiny_config(**SMALL)
    rounded = {
        name: tuple(half.astype(dtype).astype(np.float32) for half in pair)
        for name, pair in adapter_factors(config, ALL).items()
    }
    base = NoiseCheckpoint(config, 1)
    check_values(base, merge_adapter(base, write_peft_adapter(tmp_path / "p", rounded, dtype=dtype), 1.0), rounded, 2.0)


def peft_change(folder: Path, config: ModelConfig, name: str, factors, **settings) -> float:
    """The factor that a PEFT configuration gives the product for one weight, measured."""
    base = NoiseCheckpoint(config, 1)
    merged = merge_adapter(base, write_peft_adapter(folder, factors, **settings), 1.0)
    product = factors[name][0].astype(np.float64) @ factors[name][1]
    change = merged.read(name).astype(np.float64) - base.read(name)
    return float((change * product).sum() / (product * product).sum())


V = "model.layers.0.self_attn.v_proj.weight"


@pytest.mark.parametrize(
    ("name", "settings", "factor"),
    [
        (Q, {}, 2.0),
        (Q, {"use_rslora": True}, 4.0),
        (Q, {"alpha_pattern": {"q_proj": 1.0}}, 0.25),
        (V, {"alpha_pattern": {"q_proj": 1.0}}, 2.0),
        (Q, {"alpha_pattern": {"layers.0.self_attn.q_proj": 1.0}}, 2.0),
        (Q, {"alpha_pattern": {"layers.1.self_attn.q_proj": 1, "q_proj": 40}}, 0.25),
        (Q, {"alpha_pattern": {"proj": 1.0}}, 2.0),
        (Q, {"r": 9, "rank_pattern": {"self_attn.q_proj": 4, "v_proj": 4}}, 2.0),
    ],
)
def test_peft_scaling(tmp_path: Path, name, settings, factor):
    config = tiny_config(**SMALL)
    factors = adapter_factors(config, ("q_proj", "v_proj"))
    assert peft_change(tmp_path / "p", config, name, factors, **settings) == pytest.approx(factor, rel=1e-5)


def test_ranks_of_their_own(tmp_path: Path):
    config = tiny_config(**SMALL)
    factors = adapter_factors(config, ("q_proj",)) | adapter_factors(config, ("v_proj",), rank=2)
    settings = {"rank_pattern": {"v_proj": 2}}
    assert peft_change(tmp_path / "p", config, V, factors, **settings) == pytest.approx(4.0, rel=1e-5)
    base = NoiseCheckpoint(config, 1)
    write_gguf_adapter(tmp_path / "a.gguf", config, factors)
    ours, twin = (merge_adapter(base, tmp_path / path, 1.0).read(V) for path in ("a.gguf", "p"))
    np.testing.assert_array_equal(ours, twin)


@pytest.mark.parametrize("scale", [0.0, -0.0])
def test_scale_0_is_the_base(tmp_path: Path, scale):
    config = tiny_config(**SMALL)
    base = NoiseCheckpoint(config, 1)
    merged = merge_adapter(base, write_peft_adapter(tmp_path / "p", adapter_factors(config, ALL)), scale)
    for name in base.names():
        np.testing.assert_array_equal(merged.read(name), base.read(name))


def test_tied_base_takes_what_leaves_its_embedding_alone(tmp_path: Path):
    config = tiny_config(**SMALL, tie_word_embeddings=True)
    base = NoiseCheckpoint(config, 1)
    factors = adapter_factors(config, PROJECTIONS)
    check_values(base, merge_adapter(base, write_peft_adapter(tmp_path / "p", factors), 1.0), factors, 2.0)


def test_overflow_names_weight_and_row(tmp_path: Path):
    config = tiny_config(**SMALL)
    factors = adapter_factors(config, ("q_proj",))
    factors[Q][0][5] = 3e38
    merged = merge_adapter(NoiseCheckpoint(config, 1), write_peft_adapter(tmp_path / "p", factors), 8.0)
    with pytest.raises(NotFiniteError, match=r"layers\.1\.self_attn\.q_proj\.lora_B\.weight: .* overflows in row 5$"):
        merged.read(Q, slice(2, 9))
    assert np.isfinite(merged.read(Q, slice(6, 9))).all()


def test_factor_that_is_not_finite_names_its_tensor(tmp_path: Path):
    config = tiny_config(**SMALL)
    factors = adapter_factors(config, ("q_proj",))
    factors[Q][1][1, 3] = np.nan
    write_gguf_adapter(tmp_path / "a.gguf", config, factors)
    for path, name in (
        (tmp_path / "a.gguf", r"attn_q\.weight\.lora_a"),
        (write_peft_adapter(tmp_path / "p", factors), "lora_A"),
    ):
        with pytest.raises(NotFiniteError, match=rf"{name}.*: NaN in element 35, row 1"):
            merge_adapter(NoiseCheckpoint(config, 1), path, 1.0).read(Q)


def test_files_and_places(tmp_path: Path):
    config = tiny_config(**SMALL)
    write_tiny_gguf(tmp_path / "m.gguf", config, 1)
    base = GgufCheckpoint(tmp_path / "m.gguf")
    gguf = write_gguf_adapter(tmp_path / "a.gguf", config, adapter_factors(config, ALL))
    peft = write_peft_adapter(tmp_path / "p", adapter_factors(config, ALL))
    assert adapter_files(gguf) == [gguf]
    assert adapter_files(peft) == [peft / "adapter_config.json", peft / "adapter_model.safetensors"]
    wrapped = keep_rows(merge_adapter(merge_adapter(base, gguf, 1.0), peft, 0.5), [7, 3])
    assert locate(wrapped, Q, 5) == locate(base, Q, 5) and locate(wrapped, HEAD.name, 1) == locate(base, HEAD.name, 3)
    assert source_tokenizer(wrapped) is None
