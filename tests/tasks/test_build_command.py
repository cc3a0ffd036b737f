"""The main job through the real `luigi` command."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.integer_sets import low_rank, write_peft
from tests.helpers.sets import BIN, ROOT, Tiny, build_tiny, built, contents, engineset, make_tiny
from tests.helpers.tiny import tiny_config


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_tiny(tmp_path_factory.mktemp("tiny"), qtype="Q8_0")


def test_first_run_builds_the_set_and_shows_every_arrow(tmp_path: Path) -> None:
    made = make_tiny(tmp_path)
    result = made.luigi()
    assert result.returncode == 0
    assert f"engine set: {made.set.resolve()}" in result.stdout.splitlines()
    tasks = [
        "BuildEngineSet",
        "BuildMarkers 0",
        "BuildMarkers 1",
        "BuildMarkers 2",
        "CheckPlan",
        "CompileTemplate",
        "ConfirmTemplate",
        "DecodeLayout embedding",
        "DecodeLayout layer",
        "DecodeLayout post",
        "PatchEmbedding",
        "PatchLayer 0",
        "PatchLayer 1",
        "PatchPost",
        "WalkTemplate",
        "WriteSidecar",
    ]
    finished = re.findall(r"^(\S.*?) +\d+\.\d\d s$", result.stderr, re.MULTILINE)
    assert sorted(finished) == tasks
    assert "error" not in result.stderr
    assert "Traceback" not in result.stderr + result.stdout


def test_second_run_does_nothing_and_says_so(tiny: Tiny) -> None:
    stamps = {path: path.stat().st_mtime_ns for path in tiny.build.rglob("*")}
    result = tiny.luigi()
    assert result.returncode == 0
    assert "Did not run any tasks" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in tiny.build.rglob("*")} == stamps


def test_two_workers_and_another_directory_give_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    result = tiny.luigi("--build-dir", other, "--workers", 2)
    assert result.returncode == 0
    assert contents(other / "sets" / "tiny") == contents(tiny.set)


def test_gguf_on_the_command_line_replaces_the_source(tiny: Tiny, tmp_path: Path) -> None:
    other = make_tiny(tmp_path, seed=2)
    assert tiny.luigi("--gguf", other.gguf, "--build-dir", other.build).returncode == 0
    directory = other.set.resolve()
    assert directory.name != tiny.set.resolve().name
    assert contents(directory)["config.json"] == contents(tiny.set)["config.json"]
    assert contents(directory)["qwen2_post.axmodel"] != contents(tiny.set)["qwen2_post.axmodel"]


def test_another_source_reuses_templates_and_layouts(tiny: Tiny, tmp_path: Path) -> None:
    before = tiny.set.resolve()
    other = make_tiny(tmp_path, seed=5)
    result = tiny.luigi("--gguf", other.gguf)
    assert result.returncode == 0
    assert "PatchLayer 1" in result.stderr
    for name in ("BuildMarkers", "DecodeLayout", "CompileTemplate", "ConfirmTemplate", "WriteSidecar"):
        assert not any(line.startswith(f"{name} ") for line in result.stderr.splitlines()), "it ran again"
    assert tiny.set.resolve() != before
    assert before.is_dir()
    assert built(tiny) == before, "the link follows the set that was asked for last"


def test_adapter_leaves_nothing_in_templates(tiny: Tiny, tmp_path: Path) -> None:
    """A, then A with an adapter, then A; then an adapter of scale 0, whose engines are those of A."""
    plain, directory = contents(tiny.set), built(tiny)
    adapter = write_peft(
        tmp_path / "adapter", low_rank(tiny_config("qwen2"), ["model.layers.1.mlp.up_proj.weight"], 1), 6
    )
    merged = built(tiny, "--lora", adapter, "--lora-scale", 0.5)
    assert merged != directory
    changed = {name for name, data in contents(merged).items() if data != plain[name]}
    assert changed == {"qwen2_p8_l1_together.axmodel", "manifest.json"}
    shutil.rmtree(directory)
    assert built(tiny) == directory
    assert contents(directory) == plain
    nothing = built(tiny, "--lora", adapter, "--lora-scale", 0)
    assert {name for name, data in contents(nothing).items() if data != plain[name]} == {"manifest.json"}
    assert engineset("verify", merged).returncode == 0
    moved = shutil.copytree(adapter, tmp_path / "moved")
    (adapter / "adapter_model.safetensors").rename(tmp_path / "gone")
    result = engineset("verify", merged)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "adapter_model.safetensors" in result.stderr
    assert engineset("verify", merged, "--lora", moved).returncode == 0
    assert built(tiny) == directory


def test_deleted_set_is_built_again(tmp_path: Path) -> None:
    made = build_tiny(tmp_path)
    first, directory = contents(made.set), made.set.resolve()
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert built(made) == directory
    assert contents(directory) == first


def test_finished_templates_of_another_build(tiny: Tiny, tmp_path: Path) -> None:
    (template,) = (tiny.build / "templates").iterdir()
    other = Tiny(tmp_path)
    other.config.write_text(
        f'name = "tiny"\narchitecture = "qwen2"\n[source]\npath = "{tiny.gguf}"\n[templates]\ndir = "{template}"\n'
    )
    before = contents(template)
    directory = built(other)
    assert contents(template) == before
    for name, data in contents(tiny.set).items():
        if name != "manifest.json":
            assert contents(directory)[name] == data, name


def build_at_once(*arguments: list[Path | str]) -> None:
    """Start the builds together; all succeed, without a traceback."""
    command = [str(BIN / "luigi"), "--module", "tasks", "BuildEngineSet"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    children = [subprocess.Popen([*command, *map(str, own)], **pipes) for own in arguments]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
        assert "Traceback" not in errors


@pytest.mark.parametrize("spelling", ["same", "other"])
def test_two_builds_of_one_set_at_once(tmp_path: Path, spelling: str) -> None:
    made = make_tiny(tmp_path)
    again = made.config if spelling == "same" else tmp_path / ".." / tmp_path.name / made.config.name
    build_at_once(*(["--config", config, "--build-dir", made.build] for config in (made.config, again)))
    assert engineset("verify", made.set).returncode == 0
    assert not (made.build / "parts" / made.set.resolve().name.rsplit("-", 1)[1]).exists()
    assert not list(made.build.rglob(".*"))


def test_two_sources_of_one_shape_at_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = make_tiny(tmp_path / "one", seed=1), make_tiny(tmp_path / "two", seed=2)
    build_at_once(*(["--config", made.config, "--build-dir", tmp_path / "build"] for made in (one, two)))
    sets = [path for path in (tmp_path / "build" / "sets").iterdir() if not path.is_symlink()]
    assert len(sets) == 2
    assert [engineset("verify", path).returncode for path in sets] == [0, 0]


@pytest.mark.parametrize("lost", ["manifest.json", "config.json", "qwen2_post.axmodel", "layer.layout.toml"])
def test_set_that_lost_a_file_is_built_again(tmp_path: Path, lost: str) -> None:
    made = build_tiny(tmp_path)
    before = contents(made.set)
    (made.set / lost).unlink()
    result = made.luigi()
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if "damaged, made again" in line and lost in line]
    assert contents(made.set) == before


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Built once and only copied."""
    return build_tiny(tmp_path_factory.mktemp("pristine"), qtype="Q8_0")


def flip_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "place",
    [
        "templates/*/qwen2_p8_l0_together.axmodel",
        "layouts/*/layer.layout.toml",
        "layouts/*/post.layout.toml",
        "sets/tiny-*/qwen2_post.axmodel",
        "sets/tiny-*/config.json",
    ],
)
@pytest.mark.parametrize("harm", ["flip", "truncate", "directory"])
def test_damaged_cache_is_found_and_made_again(pristine: Tiny, tmp_path: Path, place: str, harm: str) -> None:
    """For the next set of the same shape, or for the same set; the log says which file."""
    shutil.copytree(pristine.build, tmp_path / "build", symlinks=True)
    (path,) = (tmp_path / "build").glob(place)
    if harm == "flip":
        flip_byte(path, path.stat().st_size // 2)
    elif harm == "truncate":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
        path.mkdir()
    other = make_tiny(tmp_path / "other", seed=7)
    source = pristine.gguf if "sets" in place else other.gguf
    result = pristine.luigi("--gguf", source, "--build-dir", tmp_path / "build")
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stderr.splitlines() if "damaged, made again" in line and path.name in line]
    made = (tmp_path / "build" / "sets" / "tiny").resolve()
    assert engineset("verify", made, "--gguf", source).returncode == 0
    fresh = pristine.luigi("--gguf", source, "--build-dir", tmp_path / "fresh")
    assert fresh.returncode == 0
    assert contents(made) == contents(tmp_path / "fresh" / "sets" / "tiny")
