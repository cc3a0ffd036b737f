"""Vendor directories: what their files say, and layouts (here the compiler's own) confirmed on each of their engines."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layouts.stored import EngineLayout
from pipeline.checkpoint.open import open_checkpoint
from pipeline.hashes import HashCache
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import engine_layout
from pipeline.toolchain.template_confirm import confirm_package
from pipeline.toolchain.template_decode import decoded_options
from pipeline.toolchain.template_describe import describe_package
from pipeline.toolchain.template_file import Template, compiled_from
from pipeline.toolchain.template_package import is_package, read_package
from tests.helpers.integer_sets import S4, S8, small_config
from tests.helpers.packages import LENGTHS, TOKENIZER, VendorSet, make_package

CONFIG = small_config("qwen3", num_hidden_layers=3)
FLAGS: dict[str, dict[str, Any]] = {
    "bf16": {"layout_seed": 5},
    "truncated": {"layout_seed": 2, "rounding": "truncate"},
    "s8": S8 | {"layout_seed": 7, "scale_rule": "row/127.5", "fold_norms": True},
    "s4": S4 | {"layout_seed": 3, "scale_type": "fp16"},
    "mixed": {"layout_seed": 1, "weight_type": "s8", "post_weight_type": "bf16"},
}


@pytest.fixture(scope="module", params=FLAGS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[VendorSet, dict[str, Any]]:
    flags = FLAGS[request.param]
    return make_package(tmp_path_factory.mktemp(request.param), CONFIG, **flags), flags


@pytest.fixture
def made(built: tuple[VendorSet, dict[str, Any]], tmp_path: Path) -> VendorSet:
    """A copy that may be spoilt."""
    shutil.copytree(built[0].folder, tmp_path / "made")
    return VendorSet(tmp_path / "made")


def true_layouts(flags: dict[str, Any]) -> dict[str, EngineLayout]:
    return {kind: engine_layout(CONFIG, CompileOptions(**(LENGTHS | flags)), kind) for kind in KINDS}


def described(made: VendorSet, folder: Path) -> Template:
    weights = open_checkpoint(made.base)
    return describe_package(
        read_package(made.package), weights, compiled_from(made.base), HashCache(folder / "hashes.sqlite")
    )


def test_lengths_come_from_the_containers_and_flags_from_the_layouts(
    built: tuple[VendorSet, dict[str, Any]], tmp_path: Path
) -> None:
    made, flags = built
    assert is_package(made.package)
    template = described(made, tmp_path)
    assert (template.options.kv_cache_len, template.options.prefill_len) == (24, 8)
    assert template.options.ladder() == [0, 8, 16]
    assert template.model == open_checkpoint(made.base).config
    assert set(template.files) == {path.name for path in made.package.iterdir()}
    options, wanted = decoded_options(template.options, true_layouts(flags)), CompileOptions(**(LENGTHS | flags))
    names = ["weight_type", "rounding", "fold_norms", "kv_cache_len", "prefill_len"]
    names += {"s8": ["scale_rule"], "s4": ["scale_type"]}.get(wanted.weight_type, [])
    assert {name: options[name] for name in names} == {name: getattr(wanted, name) for name in names}
    assert options["post_weight_type"] == wanted.post_type


def test_every_engine_is_confirmed_with_its_own_weights(built: tuple[VendorSet, dict[str, Any]]) -> None:
    made, flags = built
    package, weights = read_package(made.package), open_checkpoint(made.base)
    corrected = confirm_package(package, true_layouts(flags), weights)
    assert list(corrected) == [path.name for *_, path in package.engines()]
    assert (sum(corrected.values()) > 0) == (flags.get("weight_type") == "s8")


def test_layers_in_each_others_place_are_named(made: VendorSet, built: tuple[VendorSet, dict[str, Any]]) -> None:
    files = [made.layer(n).read_bytes() for n in range(3)]
    for n in range(3):
        made.layer(n).write_bytes(files[(n + 1) % 3])
    with pytest.raises(PlanRefusedError) as refused:
        confirm_package(read_package(made.package), true_layouts(built[1]), open_checkpoint(made.base))
    for n, line in enumerate(refused.value.faults):
        assert line.startswith(f"{made.layer(n)}: ")
        assert line.endswith(f"it holds the weights of layer {(n + 1) % 3}")
    assert len(refused.value.faults) == 3


def test_one_weight_that_moved_is_found_in_its_engine(made: VendorSet, built: tuple[VendorSet, dict[str, Any]]) -> None:
    embedding = made.package / "model.embed_tokens.weight.bfloat16.bin"
    data = bytearray(embedding.read_bytes())
    data[1001] ^= 64
    embedding.write_bytes(bytes(data))
    with pytest.raises(PlanRefusedError, match=r"bfloat16\.bin: .*model\.embed_tokens\.weight") as refused:
        confirm_package(read_package(made.package), true_layouts(built[1]), open_checkpoint(made.base))
    assert len(refused.value.faults) == 1


def test_copy_that_a_layout_has_not_is_seen_by_two_layers(built: tuple[VendorSet, dict[str, Any]]) -> None:
    """What is stored holds as far as the layout goes; the second copy is found where layers differ."""
    made, flags = built
    whole = true_layouts(flags)
    twice = [stored for stored in whole[LAYER].tensors if len(stored.copies) > 1]
    if not twice:
        pytest.skip("nothing is stored twice under this seed")
    less = tuple(replace(t, copies=t.copies[:1]) if t in twice else t for t in whole[LAYER].tensors)
    layouts = whole | {LAYER: replace(whole[LAYER], tensors=less)}
    with pytest.raises(PlanRefusedError) as refused:
        confirm_package(read_package(made.package), layouts, open_checkpoint(made.base))
    assert len(refused.value.faults) == 3
    assert all("weight-dependent bytes belong to no tensor" in line for line in refused.value.faults)


def test_everything_but_engines_is_carried(made: VendorSet) -> None:
    (made.package / "sub").mkdir()
    (made.package / "sub" / "vision.axmodel").write_bytes(b"eyes")
    (made.package / ".git").mkdir()
    (made.package / ".git" / "config").write_text("x")
    (made.package / "layer.layout.toml").write_text("another's")
    os.mkfifo(made.package / "pipe")
    carried = read_package(made.package).carried()
    assert sorted(carried) == ["README.md", "config.json", "post_config.json", "sub/vision.axmodel", TOKENIZER]


@pytest.mark.parametrize(
    "fields",
    [
        {"axmodel_num": 0},
        {"axmodel_num": 10**9},
        {"axmodel_num": "3"},
        {"template_filename_axmodel": "a%d%d"},
        {"template_filename_axmodel": "/tmp/l%d"},
        {"filename_post_axmodel": None},
        {"filename_tokens_embed": "a/../../b"},
        {"tokens_embed_size": -1},
    ],
    ids=str,
)
def test_configuration_that_is_none_names_its_key(made: VendorSet, fields: dict[str, Any]) -> None:
    (made.package / "config.json").write_text(json.dumps(made.fields | fields))
    (key,) = fields
    with pytest.raises(Exception, match=rf"config\.json: .*{key}"):
        read_package(made.package)


def test_engines_are_layers_post_and_embedding(built: tuple[VendorSet, dict[str, Any]]) -> None:
    names = [kind for kind, *_ in read_package(built[0].package).engines()]
    assert names == [LAYER] * 3 + ["post", EMBEDDING_ENGINE]
