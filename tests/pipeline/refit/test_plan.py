"""The plan: what goes where, and every fault at once before a byte is written."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from layouts.stored import EngineLayout
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.errors import MismatchError
from pipeline.model import EMBEDDING, HEAD, ModelConfig, architecture_of
from pipeline.refit.plan import Assignment, all_plans, check_plan, describe_plan, plan_engine, read_assigned
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, POST_ENGINE
from tests.helpers.engines import ARCHITECTURES, small_options, true_layouts
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config("qwen2")
NOISE = NoiseCheckpoint(CONFIG, 1)
LAYOUTS = true_layouts(NOISE, small_options())


class Altered(NoiseCheckpoint):
    """A checkpoint with other names and shapes than its configuration says."""

    def __init__(
        self, config: ModelConfig, without: str = "", shapes: dict[str, tuple[int, ...]] | None = None
    ) -> None:
        super().__init__(config, 1)
        self._shapes = {name: shape for name, shape in self._shapes.items() if name != without} | (shapes or {})


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_source_tensor_has_one_place(arch: str, tied: bool) -> None:
    config = tiny_config(arch, tie_word_embeddings=tied)
    sources = [source for plan in all_plans(config) for item in plan.assignments for source in item.sources]
    assert sorted(sources) == sorted(NoiseCheckpoint(config, 1).names())
    assert len(set(sources)) == len(sources) == 2 * len(architecture_of(config).layer) + 3
    check_plan(config, true_layouts(NoiseCheckpoint(config, 1), small_options()), NoiseCheckpoint(config, 1))


def faults(checkpoint: NoiseCheckpoint, layouts: dict[str, EngineLayout] | None = None) -> list[str]:
    with pytest.raises(PlanRefusedError) as caught:
        check_plan(CONFIG, layouts or LAYOUTS, checkpoint)
    assert isinstance(caught.value, MismatchError)
    assert str(caught.value).splitlines() == caught.value.faults
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value.faults


def test_every_wrong_dimension_is_listed() -> None:
    other = replace(CONFIG, hidden_size=384, vocab_size=999, rope_theta=5e5, num_hidden_layers=3)
    found = faults(NoiseCheckpoint(other, 1))
    assert len(found) == 4
    for line, (field, ours, theirs) in zip(
        sorted(found),
        [
            ("hidden_size", 320, 384),
            ("num_hidden_layers", 2, 3),
            ("rope_theta", 10000.0, 500000.0),
            ("vocab_size", 1000, 999),
        ],
        strict=True,
    ):
        assert line == f"noise-1: {field}: the template has {ours}, the source has {theirs}"


def test_epsilon_counts_as_a_dimension() -> None:
    """It is compiled into the microcode."""
    (line,) = faults(NoiseCheckpoint(replace(CONFIG, rms_norm_eps=1e-6), 1))
    assert "rms_norm_eps" in line


def test_names_of_tokens_and_the_tie_do_not_count() -> None:
    other = replace(CONFIG, bos_token_id=5, eos_token_ids=(7, 8), tie_word_embeddings=True, max_position_embeddings=9)
    check_plan(CONFIG, LAYOUTS, NoiseCheckpoint(other, 1))


def test_all_tensor_faults_at_once() -> None:
    gate, bias = "model.layers.1.mlp.gate_proj.weight", "model.layers.0.self_attn.q_proj.bias"
    shapes = {bias: (319,), "model.rotary.inv_freq": (32,), "lora.a": (4, 4)}
    found = faults(Altered(CONFIG, without=gate, shapes=shapes))
    assert sorted(found) == sorted(
        [
            f"noise-1: {gate}: missing, the template needs it as [864, 320]",
            f"noise-1: {bias}: the template has [1, 320], the source has [319]",
            "noise-1: model.rotary.inv_freq: no engine of the template has a place for it",
            "noise-1: lora.a: no engine of the template has a place for it",
        ]
    )


def test_template_without_a_place_and_with_one_too_many() -> None:
    layer = LAYOUTS["layer"]
    fewer = EngineLayout(layer.kind, layer.blob, layer.blob_bytes, layer.tensors[1:])
    found = faults(NOISE, LAYOUTS | {"layer": fewer})
    assert len(found) == 2
    assert all("q_proj.weight: the layer template has no place for it" in line for line in found)
    renamed = replace(layer.tensors[0], name="self_attn.sinks")
    more = EngineLayout(layer.kind, layer.blob, layer.blob_bytes, (renamed, *layer.tensors[1:]))
    assert any("wants self_attn.sinks" in line for line in faults(NOISE, LAYOUTS | {"layer": more}))


def folded_layouts(*names: str) -> dict[str, EngineLayout]:
    """The layer's layout as if the gains of norms were multiplied into these projections."""
    layer, norms = LAYOUTS["layer"], architecture_of(CONFIG).norms
    gone = {norms.attention, norms.feed_forward}
    tensors = [
        replace(tensor, folded=architecture_of(CONFIG).folded_norm(tensor.name) if tensor.name in names else "")
        for tensor in layer.tensors
        if tensor.name not in gone
    ]
    return LAYOUTS | {"layer": replace(layer, tensors=tuple(tensors))}


READERS = ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
READERS += ("mlp.gate_proj.weight", "mlp.up_proj.weight")


def test_folded_norms_are_second_sources() -> None:
    check_plan(CONFIG, folded_layouts(*READERS), NOISE)
    engine = describe_plan(all_plans(CONFIG, {"layer"}))[1]
    assert (engine["kind"], engine["layer"]) == ("layer", 1)
    listed = {item["tensor"]: item["sources"] for item in engine["assignments"]}
    assert listed["mlp.up_proj.weight"] == (
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.post_attention_layernorm.weight",
    )
    assert listed["mlp.down_proj.weight"] == ("model.layers.1.mlp.down_proj.weight",)
    assert "input_layernorm.weight" not in listed


def test_missing_folded_norm_is_named_once() -> None:
    norm = "model.layers.1.input_layernorm.weight"
    found = faults(Altered(CONFIG, without=norm), folded_layouts(*READERS))
    assert found == [f"noise-1: {norm}: missing, the template needs it as [1, 320]"]


def test_norms_that_are_folded_into_some_projections_only() -> None:
    found = faults(NOISE, folded_layouts(*READERS[1:]))
    assert found == [
        f"noise-1: model.layers.{layer}.self_attn.q_proj.weight: some norms of the layer template are folded, not this one's"
        for layer in range(2)
    ]


@pytest.mark.parametrize(("arch", "factor"), [("gemma3", np.sqrt(np.float32(320))), ("llama", np.float32(1))])
def test_scaled_embeddings_are_multiplied_in_float32_and_heads_are_not(arch: str, factor: np.float32) -> None:
    noise = NoiseCheckpoint(tiny_config(arch), 1)
    (embedding,) = plan_engine(noise.config, EMBEDDING_ENGINE).assignments
    expected = noise.read(EMBEDDING.name, slice(3, 8)) * factor
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(read_assigned(noise, embedding, slice(3, 8)), expected)
    head = next(item for item in plan_engine(noise.config, POST_ENGINE).assignments if item.tensor == HEAD.name)
    np.testing.assert_array_equal(read_assigned(noise, head, slice(3, 8)), noise.read(HEAD.name, slice(3, 8)))


@pytest.mark.filterwarnings("error")
def test_products_beyond_float32_are_infinite_without_a_warning() -> None:
    assert np.isinf(read_assigned(NOISE, Assignment("x", (EMBEDDING.name,), 3e38 * 320), slice(0, 9))).any()
