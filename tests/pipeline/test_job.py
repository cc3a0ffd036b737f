"""Names of outputs: equal inputs give equal names, and every input that changes the bytes changes them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline import job as job_module
from pipeline.engineset.sources import Adapter
from pipeline.errors import ConfigError, MismatchError, MissingFileError, ToolchainError
from pipeline.job import Job
from pipeline.resolve import resolve_job
from pipeline.toolchain.compilers import COMPILERS, REFERENCE, Compiler
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.template_file import Template, compiled_from, write_template
from pipeline.toolchain.templates import compile_template
from tests.helpers.integer_sets import low_rank, write_peft
from tests.helpers.sets import make_tiny, write_config
from tests.helpers.tiny import tiny_config


def resolve(folder: Path, source: Path | None = None) -> Job:
    return resolve_job(folder / "tiny.toml", source, folder / "hashes.sqlite")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("job")).folder


def names(job: Job) -> tuple[str, str, str]:
    return job.identity, job.template_key, job.layout_key


def test_equal_inputs_give_equal_names_anywhere(folder: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "elsewhere")
    assert names(resolve(folder)) == names(resolve(other.folder)) == names(resolve(folder))
    for name in names(resolve(folder)):
        assert len(name) == 16
        int(name, 16)


def test_another_source_changes_the_set_alone(folder: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path, seed=2)
    ours, theirs = names(resolve(folder)), names(resolve(folder, other.gguf))
    assert ours[0] != theirs[0]
    assert ours[1:] == theirs[1:]


def test_another_quantization_changes_the_set(folder: Path, tmp_path: Path) -> None:
    assert names(resolve(make_tiny(tmp_path, qtype="Q8_0").folder))[0] != names(resolve(folder))[0]


def test_name_of_the_file_is_an_input(folder: Path, tmp_path: Path) -> None:
    """It stands in the manifest."""
    (tmp_path / "renamed.gguf").write_bytes((folder / "tiny.gguf").read_bytes())
    assert resolve(folder, tmp_path / "renamed.gguf").identity != resolve(folder).identity


@pytest.mark.parametrize(
    "flags",
    [
        {"layout_seed": 4},
        {"kv_cache_len": 40},
        {"prefill_len": 16},
        {"weight_type": "fp32"},
        {"chip": "AX620E"},
        {"last_kv_cache_len": [8]},
    ],
    ids=str,
)
def test_every_flag_changes_every_name(folder: Path, tmp_path: Path, flags: dict[str, object]) -> None:
    write_config(tmp_path / "tiny.toml", "qwen2", **({"layout_seed": 3} | flags))
    other = resolve(tmp_path, folder / "tiny.gguf")
    assert all(a != b for a, b in zip(names(other), names(resolve(folder)), strict=True))


@pytest.mark.parametrize(
    "sizes",
    [
        {"hidden_size": 256},
        {"intermediate_size": 896},
        {"vocab_size": 1001},
        {"head_dim": 48},
        {"rope_theta": 5e5},
        {"rms_norm_eps": 1e-6},
    ],
    ids=str,
)
def test_every_dimension_changes_every_name(folder: Path, tmp_path: Path, sizes: dict[str, object]) -> None:
    other = names(resolve(make_tiny(tmp_path, **sizes).folder))
    assert all(a != b for a, b in zip(other, names(resolve(folder)), strict=True))


def test_number_of_layers_does_not_change_the_layout(folder: Path, tmp_path: Path) -> None:
    ours, theirs = names(resolve(folder)), names(resolve(make_tiny(tmp_path, num_hidden_layers=3).folder))
    assert ours[2] == theirs[2]
    assert ours[1] != theirs[1]


def test_tied_head_changes_the_template_and_not_the_layout(folder: Path, tmp_path: Path) -> None:
    ours, theirs = names(resolve(folder)), names(resolve(make_tiny(tmp_path, tie_word_embeddings=True).folder))
    assert ours[2] == theirs[2]
    assert ours[1] != theirs[1]


def test_output_format_changes_every_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(resolve(folder))
    monkeypatch.setattr(job_module, "OUTPUT_FORMAT", "another")
    assert all(a != b for a, b in zip(names(resolve(folder)), before, strict=True))


def test_compiler_version_changes_every_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names(resolve(folder))
    monkeypatch.setitem(COMPILERS, REFERENCE, lambda tool: Compiler("another", compile_model))
    assert all(a != b for a, b in zip(names(resolve(folder)), before, strict=True))


def test_wrong_architecture_names_both_sides(folder: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "tiny.toml", "llama")
    with pytest.raises(MismatchError, match=r"tiny\.gguf: architecture: .*\(expected llama, found qwen2\)"):
        _ = resolve(tmp_path, folder / "tiny.gguf").checkpoint


@pytest.mark.parametrize(
    "flags",
    [
        {"post_weight_type": "s8"},
        {"scale_rule": "group/127"},
        {"scale_type": "fp16"},
        {"fold_norms": True},
        {"prefill_share": 0.5},
        {"corrections": 0.0},
    ],
    ids=str,
)
def test_every_flag_of_integer_engines_changes_every_name(
    folder: Path, tmp_path: Path, flags: dict[str, object]
) -> None:
    found = []
    for changed in ({}, flags):
        write_config(tmp_path / "tiny.toml", "qwen2", weight_type="s8", **changed)
        found.append(names(resolve(tmp_path, folder / "tiny.gguf")))
    assert all(a != b for a, b in zip(*found, strict=True))


def test_scale_mode_changes_the_set_alone(folder: Path, tmp_path: Path) -> None:
    found = []
    for mode in ("refit", "search"):
        write_config(tmp_path / "tiny.toml", "qwen2", top={"scales": mode}, weight_type="s4")
        found.append(names(resolve(tmp_path, folder / "tiny.gguf")))
    assert found[0][0] != found[1][0]
    assert found[0][1:] == found[1][1:]


def test_adapter_and_its_scale_change_the_set_alone(folder: Path, tmp_path: Path) -> None:
    config = tiny_config("qwen2")
    path = write_peft(tmp_path / "adapter", low_rank(config, ["model.layers.0.mlp.up_proj.weight"], 1), 6)
    found = [names(resolve(folder))]
    for scale in (1.0, 0.5):
        adapter = Adapter(path, scale)
        found.append(names(resolve_job(folder / "tiny.toml", None, tmp_path / "hashes.sqlite", adapter)))
    assert len({found_names[0] for found_names in found}) == 3
    assert len({found_names[1:] for found_names in found}) == 1
    shutil.copytree(path, tmp_path / "elsewhere" / "adapter")
    moved = Adapter(tmp_path / "elsewhere" / "adapter", 0.5)
    assert names(resolve_job(folder / "tiny.toml", None, tmp_path / "hashes.sqlite", moved)) == found[2]


def test_adapter_that_changes_while_it_is_read_is_named(folder: Path, tmp_path: Path) -> None:
    factors = low_rank(tiny_config("qwen2"), ["model.layers.0.mlp.up_proj.weight"], 1)
    path = write_peft(tmp_path / "adapter", factors, 6)
    job = resolve_job(folder / "tiny.toml", None, tmp_path / "hashes.sqlite", Adapter(path, 1.0))
    assert job.identity and job.changed_sources() == []
    shutil.rmtree(path)
    write_peft(path, factors, 7)
    assert job.changed_sources() == [path]


def test_adapter_that_is_not_there(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="none: no such adapter"):
        resolve_job(folder / "tiny.toml", None, tmp_path / "hashes.sqlite", Adapter(tmp_path / "none", 1.0))


def test_kept_tokens_change_every_name_by_number_and_the_set_by_list(folder: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "tiny.toml", "qwen2", top={"vocab_keep": "ids.json"}, layout_seed=3)
    found = [names(resolve(folder))]
    for ids in ([1, 2, 5], [1, 2, 6], [1, 2, 6, 7]):
        (tmp_path / "ids.json").write_text(json.dumps(ids))
        found.append(names(resolve(tmp_path, folder / "tiny.gguf")))
    assert resolve(tmp_path, folder / "tiny.gguf").template_model.kept_rows == 4
    assert len({found_names[0] for found_names in found}) == 4
    assert found[1][1:] == found[2][1:]
    assert all(a != b for a, b in zip(found[2], found[3], strict=True))


def test_kept_tokens_name_the_templates_of_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    """Their head has these rows, and no others."""
    base = {"path": str(folder / "tiny.gguf")}
    write_config(tmp_path / "tiny.toml", "qwen2", top={"vocab_keep": "ids.json"}, weight_type="s8", checkpoint=base)
    found = []
    for ids in ([1, 2, 5], [1, 2, 6]):
        (tmp_path / "ids.json").write_text(json.dumps(ids))
        found.append(names(resolve(tmp_path, folder / "tiny.gguf")))
    assert found[0][1] != found[1][1] and found[0][2] == found[1][2]


def test_templates_of_a_checkpoint_have_its_name(folder: Path, tmp_path: Path) -> None:
    make_tiny(tmp_path / "base", seed=4)
    found = []
    for base in (None, "base/tiny.gguf", str(folder / "tiny.gguf")):
        checkpoint = {} if base is None else {"checkpoint": {"path": base}}
        write_config(tmp_path / "tiny.toml", "qwen2", weight_type="s8", **checkpoint)
        found.append(names(resolve(tmp_path, folder / "tiny.gguf")))
    assert len({found_names[0] for found_names in found}) == len({found_names[1] for found_names in found}) == 3
    assert len({found_names[2] for found_names in found}) == 1


def described(tmp_path: Path, folder: Path, mode: str, **fields: object) -> Job:
    """A job on finished templates of this description."""
    options = CompileOptions("s8", kv_cache_len=32, prefill_len=8)
    origin = compiled_from(folder / "tiny.gguf")
    template = Template("reference", "7.0", options, tiny_config("qwen2"), None, {}, origin)
    (tmp_path / "template").mkdir()
    write_template(tmp_path / "template", msgspec.structs.replace(template, **fields))
    write_config(tmp_path / "tiny.toml", "qwen2", top={"scales": mode}, dir="template")
    return resolve(tmp_path, folder / "tiny.gguf")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"seed": 1, "checkpoint": None}, r"template\.json: seed: the template holds noise"),
        ({"checkpoint": None}, r"template\.json: checkpoint: what the template was compiled from is not known"),
    ],
)
def test_templates_whose_scales_say_nothing(
    folder: Path, tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(ToolchainError, match=reason):
        described(tmp_path, folder, "engine", **fields)


@pytest.mark.parametrize("mode", ["search", "engine"])
def test_float_engines_have_no_scales(folder: Path, tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"tiny\.toml: scales: float engines .*found {mode}"):
        described(tmp_path, folder, mode, options=CompileOptions())


def test_engine_set_is_no_template(folder: Path, tmp_path: Path) -> None:
    job = described(tmp_path, folder, "engine")
    assert job.template is not None
    (tmp_path / "template" / "template.json").rename(tmp_path / "template" / "manifest.json")
    with pytest.raises(ToolchainError, match="template: an engine set is no template"):
        resolve(tmp_path, folder / "tiny.gguf")


def test_finished_templates_bring_their_own_flags(folder: Path, tmp_path: Path) -> None:
    options = replace(resolve(folder).options, kv_cache_len=24)
    compile_template(REFERENCE, tiny_config("qwen2"), options, tmp_path / "template")
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\narchitecture = "qwen2"\n[source]\npath = "x"\n[templates]\ndir = "template"\n'
    )
    job = resolve(tmp_path, folder / "tiny.gguf")
    assert job.options == options
    assert job.template_directory == tmp_path / "template"
    before = job.identity
    text = (tmp_path / "template" / "template.json").read_text()
    (tmp_path / "template" / "template.json").write_text(text.replace('"seed": 20260', '"seed": 1'))
    assert resolve(tmp_path, folder / "tiny.gguf").identity != before
    (tmp_path / "template" / "template.json").write_text("{}")
    with pytest.raises(ToolchainError, match=r"template\.json"):
        _ = resolve(tmp_path, folder / "tiny.gguf").template
    (tmp_path / "template" / "template.json").unlink()
    with pytest.raises(MissingFileError, match=r"template\.json"):
        _ = resolve(tmp_path, folder / "tiny.gguf").template
