"""What the reference compiler writes into s8 and s4 engines: integers, entries, zeros, corrections, folded norms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from layouts.encoding import Encoded, encode_rows
from layouts.integers import integer_codec
from layouts.marking import mark_tensor
from layouts.stored import EngineLayout, StoredTensor
from layouts.view import read_encoded, read_tensor
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.container.blob import read_blob
from pipeline.engineset.names import engine_file
from pipeline.model import ModelConfig
from pipeline.refit.plan import plan_engine
from pipeline.toolchain import reference
from pipeline.toolchain.engine_map import engine_map
from pipeline.toolchain.kinds import LAYER, POST_ENGINE
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout
from tests.helpers.tiny import tiny_config

ENGINES = (LAYER, POST_ENGINE)
PLAIN = CompileOptions("s8", kv_cache_len=16, prefill_len=8, post_weight_type="s8", corrections=0.0)
CASES = {
    "s8": (PLAIN, "llama"),
    "s8-corrected": (replace(PLAIN, corrections=1.0, layout_seed=1), "qwen2"),
    "s8-127.5": (replace(PLAIN, scale_rule="row/127.5", layout_seed=2), "qwen3"),
    "s8-group": (replace(PLAIN, scale_rule="group/127", layout_seed=3, fold_norms=True), "gemma3"),
    "s8-group-127.5": (replace(PLAIN, scale_rule="group/127.5", layout_seed=4, corrections=0.3), "llama"),
    "s8-post-bf16": (replace(PLAIN, post_weight_type="", layout_seed=5, fold_norms=True), "qwen2"),
    "s4": (replace(PLAIN, weight_type="s4", post_weight_type="s4"), "gemma3"),
    "s4-fp16": (replace(PLAIN, weight_type="s4", scale_type="fp16", layout_seed=6, fold_norms=True), "llama"),
    "s4-seed7": (replace(PLAIN, weight_type="s4", post_weight_type="s4", layout_seed=7), "qwen3"),
}
Compiled = tuple[Path, CompileOptions, ModelConfig]


@pytest.fixture(scope="module", params=CASES, ids=str)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    options, arch = CASES[request.param]
    config, folder = tiny_config(arch, num_hidden_layers=2), tmp_path_factory.mktemp("engines")
    compile_model(NoiseCheckpoint(config, 1), folder, options)
    return folder, options, config


def blob_of(folder: Path, config: ModelConfig, kind: str, layer: int = 0) -> npt.NDArray[np.uint8]:
    return read_blob(folder / engine_file(config, PLAIN.prefill_len, kind, layer))


def weights_of(source: Checkpoint, options: CompileOptions, kind: str, layer: int = 0) -> dict[str, Float32]:
    """Engine tensor -> float32 `[rows, cols]`, gains multiplied in where they are folded."""
    found = {}
    for item in plan_engine(source.config, kind, layer, options.folds(kind)).assignments:
        values = source.read(item.sources[0])
        for gain in item.sources[1:]:
            values = values * source.read(gain)
        found[item.tensor] = values if values.ndim == 2 else values[None]
    return found


def steps(stored: StoredTensor, encoded: Encoded) -> npt.NDArray[np.int16]:
    return integer_codec(stored.codec).from_raw(encoded.raw).astype(np.int16)


def test_every_copy_holds_the_weights_of_its_layer(compiled: Compiled) -> None:
    folder, options, config = compiled
    source = NoiseCheckpoint(config, 1)
    for kind, layer in ((LAYER, 0), (LAYER, 1), (POST_ENGINE, 0)):
        blob, weights = blob_of(folder, config, kind, layer), weights_of(source, options, kind, layer)
        layout = engine_layout(config, options, kind)
        assert layout.blob_bytes == len(blob)
        assert set(layout.names()) == set(weights)
        for stored in layout.tensors:
            wanted = encode_rows(stored, weights[stored.name])
            whole = read_encoded(blob, stored)
            for copy in stored.copies:
                for start, stop in copy.rows:
                    found = read_encoded(blob, stored, copy.name, slice(start, stop))
                    assert np.array_equal(found.raw, whole.raw[start:stop])
                    if wanted.entries is not None:
                        assert np.array_equal(found.entries, wanted.entries[start:stop])
            if stored.scales is None:
                assert stored.codec == "bf16"
                assert np.array_equal(whole.raw, wanted.raw)
            else:
                moved = np.abs(steps(stored, whole) - steps(stored, wanted))
                most = stored.shape[0] * stored.shape[1] // 256 if options.corrections and stored.codec == "s8" else 0
                assert moved.max() <= 1
                assert np.count_nonzero(moved) <= most


def test_entries_hold_scale_and_reciprocal(compiled: Compiled) -> None:
    folder, options, config = compiled
    weights = weights_of(NoiseCheckpoint(config, 1), options, LAYER)
    stored = engine_layout(config, options, LAYER)["mlp.down_proj.weight"]
    scales, entries = stored.scales, read_encoded(blob_of(folder, config, LAYER), stored).entries
    assert scales is not None
    assert entries is not None
    groups = np.split(np.abs(weights[stored.name]), range(scales.group, stored.shape[1], scales.group), axis=1)
    most = np.stack([group.max(axis=1) for group in groups], axis=1)
    if scales.shared:
        most = np.broadcast_to(most.max(axis=1, keepdims=True), most.shape)
    bits = (entries >> 16 if scales.entry == "reciprocal" else entries).astype(np.uint16)
    scale = bits.view(np.float16 if scales.entry == "fp16" else ml_dtypes.bfloat16).astype(np.float64)
    assert (scale >= most.astype(np.float64) / scales.divisor).all()
    assert (scale <= most * (1 + 2**-6) / scales.divisor).all()
    if scales.entry == "reciprocal":
        reciprocal = (1 / scale).astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
        assert np.array_equal(entries & 0xFFFF, reciprocal)


def owned_bits(layout: EngineLayout) -> npt.NDArray[np.uint8]:
    mask = np.zeros(layout.blob_bytes, np.uint8)
    for stored in layout.tensors:
        mark_tensor(mask, stored)
    return mask


def test_unused_bits_of_integer_matrices_are_zero(compiled: Compiled) -> None:
    folder, options, config = compiled
    unused = 0
    for kind in ENGINES:
        free = ~owned_bits(engine_layout(config, options, kind))
        blob = blob_of(folder, config, kind)
        for start, stop in engine_map(config, options, kind).zeroed:
            assert not (blob[start:stop] & free[start:stop]).any()
            unused += np.count_nonzero(free[start:stop])
    assert unused > 1000


def test_nothing_but_the_weights_depends_on_the_weights(compiled: Compiled, tmp_path: Path) -> None:
    folder, options, config = compiled
    compile_model(NoiseCheckpoint(config, 2), tmp_path, options)
    for kind in ENGINES:
        name = engine_file(config, options.prefill_len, kind)
        first, second = (np.fromfile(directory / name, np.uint8) for directory in (folder, tmp_path))
        layout = engine_layout(config, options, kind)
        differs, end = first ^ second, layout.blob_offset + layout.blob_bytes
        assert not differs[: layout.blob_offset].any()
        assert not differs[end:].any()
        assert not (differs[layout.blob_offset : end] & ~owned_bits(layout)).any()


def test_a_folded_norm_is_all_ones(compiled: Compiled) -> None:
    folder, options, config = compiled
    norms = {LAYER: ["input_layernorm.weight"], POST_ENGINE: ["model.norm.weight"]}
    for kind, names in norms.items():
        layout, memory = engine_layout(config, options, kind), engine_map(config, options, kind)
        for name in names:
            assert (name in layout.names()) != options.folds(kind)
            gain = read_tensor(blob_of(folder, config, kind), memory.placed[name].stored())
            assert (gain == 1).all() == options.folds(kind)
    folded = {stored.name: stored.folded for stored in engine_layout(config, options, LAYER).tensors if stored.folded}
    feed_forward = "pre_feedforward" if config.architecture == "gemma3" else "post_attention"
    expected = {f"self_attn.{which}_proj.weight": "input_layernorm.weight" for which in "qkv"}
    expected |= {f"mlp.{which}_proj.weight": f"{feed_forward}_layernorm.weight" for which in ("gate", "up")}
    assert folded == (expected if options.fold_norms else {})


def test_engines_are_the_same_by_ranges_of_any_size(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, options, config = compiled
    monkeypatch.setattr(reference, "ELEMENTS_AT_A_TIME", 9000)
    for path in compile_model(NoiseCheckpoint(config, 1), tmp_path, options):
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name
