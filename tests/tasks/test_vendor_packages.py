"""A finished vendor directory as templates: named in the config with the checkpoint that it was built from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.integer_sets import S8, small_config, write_source
from tests.helpers.packages import TOKENIZER, VendorSet, compiled_anew, make_package
from tests.helpers.sets import build_tiny, built, check_refusal, contents, engineset
from tests.helpers.tiny import tiny_weights

CONFIG = small_config("qwen3")
BF16: dict[str, Any] = {}
EXACT = S8 | {"corrections": 0.0}
CASES = [(BF16, 0), (BF16, 5), (EXACT, 0), (EXACT, 4), (EXACT | {"fold_norms": True}, 7)]


@pytest.mark.parametrize(("flags", "layout_seed"), CASES)
def test_set_is_what_the_vendors_compiler_would_make(tmp_path: Path, flags: dict[str, Any], layout_seed: int) -> None:
    flags = flags | {"layout_seed": layout_seed}
    made = make_package(tmp_path, CONFIG, **flags)
    before = contents(made.package)
    directory = built(made)
    held, fresh = contents(directory), compiled_anew(made, CONFIG, 2, tmp_path / "fresh", **flags)
    assert {name: held[name] for name in fresh} == fresh
    for name in ("config.json", "post_config.json", "README.md", TOKENIZER):
        assert held[name] == before[name], name
    assert contents(made.package) == before
    done = engineset("verify", directory)
    assert done.returncode == 0, done.stderr
    options = json.loads(held["manifest.json"])["template"]["options"]
    assert (options["weight_type"], options["kv_cache_len"]) == (flags.get("weight_type", "bf16"), 24)
    run = engineset("run", directory, "--tokens", "3,5", "-n", 2, "--json")
    assert run.returncode == 0, run.stderr


def test_two_types_of_layer_share_a_layout_and_two_sources_a_decode(tmp_path: Path) -> None:
    config = small_config("gemma3", num_hidden_layers=3)
    made = make_package(tmp_path, config, layout_seed=2)
    built(made)
    write_source(made.gguf, config, tiny_weights(config, 9))
    result = made.luigi()
    assert result.returncode == 0, result.stderr
    assert "PatchLayer 2" in result.stderr
    for name in ("BuildMarkers", "DecodeLayout", "ConfirmTemplate", "WriteSidecar"):
        assert not any(line.startswith(name) for line in result.stderr.splitlines()), name
    fresh = compiled_anew(made, config, 9, tmp_path / "fresh", layout_seed=2)
    assert {name: (made.set / name).read_bytes() for name in fresh} == fresh


def test_own_weights_and_own_scales_are_the_identity(tmp_path: Path) -> None:
    made = make_package(tmp_path, CONFIG, seed=1, **S8, layout_seed=3)
    made.configure(scales="engine")
    held = contents(built(made))
    before = contents(made.package)
    assert {name for name, data in before.items() if held[name] != data} == set()


def swap(made: VendorSet) -> None:
    first, second = made.layer(0).read_bytes(), made.layer(1).read_bytes()
    made.layer(0).write_bytes(second)
    made.layer(1).write_bytes(first)


def other_field(**fields: Any) -> Callable[[VendorSet], None]:
    def change(made: VendorSet) -> None:
        (made.package / "config.json").write_text(json.dumps(made.fields | fields))

    return change


def other_size(made: VendorSet) -> None:
    other = small_config("qwen3", intermediate_size=128)
    twin = make_package(made.folder / "other", other)
    made.layer(1).write_bytes(twin.layer(1).read_bytes())


def other_weights(made: VendorSet) -> None:
    shutil.rmtree(made.base)
    write_source(made.base, CONFIG, tiny_weights(CONFIG, 8))


def other_source(**sizes: Any) -> Callable[[VendorSet], None]:
    def change(made: VendorSet) -> None:
        config = small_config("qwen3", **sizes)
        write_source(made.gguf, config, tiny_weights(config, 2))

    return change


def cut(name: str) -> Callable[[VendorSet], None]:
    def change(made: VendorSet) -> None:
        path = made.package / name
        path.write_bytes(path.read_bytes()[:-2])

    return change


EMBEDDING, POST = "model.embed_tokens.weight.bfloat16.bin", "vendor7b_post.axmodel"
HARMS: dict[str, tuple[Callable[[VendorSet], None], list[str]]] = {
    "missing": (
        lambda made: made.layer(1).unlink(),
        [r"vendor7b_p8_l1_together\.axmodel: the package lacks an engine"],
    ),
    "swapped": (
        swap,
        [
            r"_l0_together\.axmodel: .*; it holds the weights of layer 1",
            r"_l1_together\.axmodel: .*; it holds the weights of layer 0",
        ],
    ),
    "size": (other_size, [r"_l1_together\.axmodel: bytes of weights differ from those of vendor7b_p8_l0"]),
    "layers": (other_field(axmodel_num=1), [r"config\.json: axmodel_num: the package has 1, .* has 2"]),
    "vocabulary": (other_field(tokens_embed_num=71), [r"config\.json: tokens_embed_num: the package has 71"]),
    "rope": (other_field(rope_theta=5e5), [r"config\.json: rope_theta: the package has 500000\.0, .* 10000\.0"]),
    "nested": (other_field(text_config={"rope_theta": 5e5}), [r"config\.json: rope_theta: "]),
    "prefill": (
        other_field(template_filename_axmodel="v_p16_l%d.axmodel"),
        [r"v_p16_l0\.axmodel: the package lacks", r"v_p16_l1\.axmodel: the package lacks"],
    ),
    "escape": (other_field(filename_post_axmodel="../x"), [r"config\.json: filename_post_axmodel: not a file of the"]),
    "pattern": (other_field(template_filename_axmodel="%s%d"), [r"config\.json: template_filename_axmodel: "]),
    "not json": (cut("config.json"), [r"config\.json: not a vendor's configuration"]),
    "embedding": (cut(EMBEDDING), [r"bfloat16\.bin: not 70 x 64 bf16"]),
    "post": (cut(POST), [r"vendor7b_post\.axmodel: "]),
    "source rope": (other_source(rope_theta=5e5), [r"tiny\.gguf: rope_theta: the template has 10000\.0, .* 500000\.0"]),
    "source vocabulary": (other_source(vocab_size=71), [r"tiny\.gguf: vocab_size: the template has 70, .* 71"]),
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> VendorSet:
    """Built once and only copied."""
    return make_package(tmp_path_factory.mktemp("pristine"), CONFIG, layout_seed=1)


@pytest.fixture
def made(pristine: VendorSet, tmp_path: Path) -> VendorSet:
    shutil.copytree(pristine.folder, tmp_path / "made")
    return VendorSet(tmp_path / "made")


@pytest.mark.parametrize("harm", HARMS)
def test_what_differs_is_refused_by_name(made: VendorSet, harm: str) -> None:
    change, reasons = HARMS[harm]
    change(made)
    check_refusal(made, made.luigi(), reasons)


def test_checkpoint_of_other_weights_is_refused(made: VendorSet) -> None:
    other_weights(made)
    result = made.luigi()
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert errors
    assert all("vendor7b_" in line for line in errors)


def test_damage_after_the_confirmation_is_refused(made: VendorSet) -> None:
    built(made)
    data = bytearray(made.layer(1).read_bytes())
    data[len(data) // 2] ^= 1
    made.layer(1).write_bytes(bytes(data))
    result = made.luigi()
    assert result.returncode != 0
    assert "vendor7b_p8_l1_together.axmodel" in result.stderr


def test_config_says_which_checkpoint(made: VendorSet) -> None:
    made.config.write_text(made.config.read_text().split("[templates.checkpoint]")[0])
    check_refusal(made, made.luigi(), [r"tiny\.toml: templates\.checkpoint: a vendor directory needs the checkpoint"])


def test_directories_of_ours_are_not_a_vendors(made: VendorSet, tmp_path: Path) -> None:
    whole = build_tiny(tmp_path / "whole")
    (template,) = (whole.build / "templates").iterdir()
    for directory, reason in (
        (whole.set.resolve(), r"an engine set is no template"),
        (tmp_path / "none", r"none/template\.json: "),
        (template, r"templates\.checkpoint: `dir` goes alone"),
    ):
        made.configure()
        made.config.write_text(made.config.read_text().replace('dir = "package"', f'dir = "{directory}"'))
        check_refusal(made, made.luigi(), [reason])
