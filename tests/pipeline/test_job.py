"""Names of outputs: equal inputs give equal names, and every input that changes the bytes changes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline import job as job_module
from pipeline.errors import MismatchError, MissingFileError, ToolchainError
from pipeline.job import Job, resolve_job
from pipeline.toolchain.compilers import COMPILERS, REFERENCE, Compiler
from pipeline.toolchain.templates import compile_template
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
    monkeypatch.setitem(COMPILERS, REFERENCE, Compiler("another", COMPILERS[REFERENCE].compile))
    assert all(a != b for a, b in zip(names(resolve(folder)), before, strict=True))


def test_wrong_architecture_names_both_sides(folder: Path, tmp_path: Path) -> None:
    write_config(tmp_path / "tiny.toml", "llama")
    with pytest.raises(MismatchError, match=r"tiny\.gguf: architecture: .*\(expected llama, found qwen2\)"):
        _ = resolve(tmp_path, folder / "tiny.gguf").checkpoint


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
