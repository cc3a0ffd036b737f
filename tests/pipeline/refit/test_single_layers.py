"""Engines of a language model, one at a time, by the layout alone: what a set's plan gives for the same engine."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from layouts.stored import EngineLayout
from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.engineset.names import engine_file
from pipeline.errors import EngineSetError, MismatchError
from pipeline.model import ModelConfig
from pipeline.refit.refused import PlanRefusedError
from pipeline.refit.single_refit import NamedLayout, Refitted, Sources, open_assigned, refit_file
from pipeline.refit.single_verify import verify_engine
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout
from tests.helpers.gemma import tiny_gemma
from tests.helpers.tiny import tiny_config, tiny_weights, write_gguf, write_tiny_gguf, write_tiny_hf

SMALL = {"num_hidden_layers": 2, "hidden_size": 96, "intermediate_size": 130, "vocab_size": 65}
CONFIGS = {
    "qwen2-bf16": (tiny_config("qwen2", **SMALL), {}),
    "qwen3-s8-folded": (tiny_config("qwen3", **SMALL), {"weight_type": "s8", "fold_norms": True, "corrections": 0.0}),
    "gemma3-s4": (tiny_gemma(8, vocab_size=65), {"weight_type": "s4", "post_weight_type": "s8", "corrections": 0.0}),
}
CHUNK = 8


@cache
def case(name: str) -> tuple[ModelConfig, CompileOptions]:
    config, flags = CONFIGS[name]
    return config, CompileOptions(kv_cache_len=16, prefill_len=CHUNK, layout_seed=4, **flags)


@cache
def layout_of(name: str, kind: str) -> NamedLayout:
    return NamedLayout(kind, engine_layout(*case(name), kind))


@pytest.fixture(scope="module", params=CONFIGS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Engines of weights 1 and 2 in the folders `1` and `2`, with the GGUFs of both."""
    folder = tmp_path_factory.mktemp(request.param)
    config, options = case(request.param)
    for seed in (1, 2):
        write_tiny_gguf(folder / f"{seed}.gguf", config, seed)
        compile_model(GgufCheckpoint(folder / f"{seed}.gguf"), folder / str(seed), options)
    return request.param, folder


def put(model: tuple[str, Path], kind: str, layer: int | None, output: Path, base_layer: int = 0) -> Refitted:
    """The engine of `base_layer` with a layer of weights 2."""
    name, folder = model
    engine = folder / "1" / engine_file(case(name)[0], CHUNK, kind, base_layer)
    return refit_file(
        engine, layout_of(name, kind), Sources(folder / "2.gguf", folder / "1.gguf", layer), "refit", output
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_engine_is_what_is_compiled(model: tuple[str, Path], tmp_path: Path, kind: str) -> None:
    name, folder = model
    config, _ = case(name)
    for layer in range(config.num_hidden_layers) if kind == LAYER else (0,):
        output = tmp_path / engine_file(config, CHUNK, kind, layer)
        done = put(model, kind, layer if kind == LAYER else None, output, layer)
        assert output.read_bytes() == (folder / "2" / engine_file(config, CHUNK, kind, layer)).read_bytes()
        assert (done.confirmed, done.unused) == (f"the layout predicts the engine from {folder / '1.gguf'}", [])
        weights, _ = open_assigned(layout_of(name, kind).layout, folder / "2.gguf", layer if kind == LAYER else None)
        engine = folder / "1" / engine_file(config, CHUNK, kind, layer)
        assert verify_engine(output, weights, "refit", engine).faults == []


def test_layer_must_be_given_for_layers_and_for_nothing_else(model: tuple[str, Path], tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="which layer's weights go in"):
        put(model, LAYER, None, tmp_path / "out")
    with pytest.raises(MismatchError, match="takes the weights of no layer"):
        put(model, POST_ENGINE, 0, tmp_path / "out")


def test_wrong_layer_is_not_confirmed(model: tuple[str, Path], tmp_path: Path) -> None:
    with pytest.raises(EngineSetError, match="stored elements that are not the known weights"):
        put(model, LAYER, 0, tmp_path / "out", 1)
    assert list(tmp_path.iterdir()) == []


def test_layer_that_the_source_lacks_lists_all_it_lacks(model: tuple[str, Path], tmp_path: Path) -> None:
    name, folder = model
    layout: EngineLayout = layout_of(name, LAYER).layout
    with pytest.raises(PlanRefusedError) as caught:
        open_assigned(layout, folder / "2.gguf", 9)
    lines = str(caught.value).splitlines()
    assert all("model.layers.9." in line and "missing" in line for line in lines)
    folded = {tensor.folded for tensor in layout.tensors} - {""}
    assert len(lines) == len(layout.tensors) + len(folded)


def test_weight_of_the_layer_without_a_place_is_refused(tmp_path: Path) -> None:
    """A llama engine has no place for the biases of a qwen2."""
    config = tiny_config("llama", **SMALL)
    layout = engine_layout(config, CompileOptions(kv_cache_len=16, prefill_len=CHUNK), LAYER)
    other = tiny_config("qwen2", **SMALL)
    write_gguf(tmp_path / "q.gguf", other, tiny_weights(other, 1))
    with pytest.raises(PlanRefusedError) as caught:
        open_assigned(layout, tmp_path / "q.gguf", 1)
    expected = [f"model.layers.1.self_attn.{which}_proj.bias: the engine has no place for it" for which in "qkv"]
    assert str(caught.value).splitlines() == [f"{tmp_path / 'q.gguf'}: {line}" for line in expected]


def test_embedding_needs_a_source_that_says_whether_it_is_scaled(tmp_path: Path) -> None:
    config = tiny_config("llama", **SMALL)
    write_tiny_hf(tmp_path / "hf", config, 1)
    (file,) = (tmp_path / "hf").glob("*.safetensors")
    layout = engine_layout(config, CompileOptions(kv_cache_len=16, prefill_len=CHUNK), EMBEDDING_ENGINE)
    open_assigned(layout, tmp_path / "hf", None)
    with pytest.raises(MismatchError, match="needs a source with a config"):
        open_assigned(layout, file, None)


def test_layer_out_of_one_safetensors_file(tmp_path: Path) -> None:
    config = tiny_config("llama", **SMALL)
    write_tiny_hf(tmp_path / "hf", config, 1)
    (file,) = (tmp_path / "hf").glob("*.safetensors")
    layout = engine_layout(config, CompileOptions(kv_cache_len=16, prefill_len=CHUNK), LAYER)
    weights, unused = open_assigned(layout, file, 1)
    directory, _ = open_assigned(layout, tmp_path / "hf", 1)
    assert unused == []
    for stored in layout.tensors:
        for a, b in zip(weights.ranges(stored), directory.ranges(stored), strict=True):
            assert (a.values == b.values).all()
