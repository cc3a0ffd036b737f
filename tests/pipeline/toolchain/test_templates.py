"""Template sets: written whole, described, and confirmed against the noise that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.sources import open_weights
from pipeline.errors import CheckpointError, DecodeRefused, MissingFileError, ToolchainError
from pipeline.files import file_sha256
from pipeline.model import FULL, SLIDING
from pipeline.toolchain.compilers import REFERENCE, compile_published
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout
from pipeline.toolchain.template_file import TEMPLATE_FILE, compiled_from, read_template, template_weights
from pipeline.toolchain.templates import (
    TEMPLATE_SEED,
    compile_directory,
    compile_template,
    confirm_template,
    single_layer,
)
from tests.helpers.engines import Case, overwrite, true_layouts
from tests.helpers.tiny import tiny_config, write_tiny_gguf

CASE = Case(7)
NOISE = NoiseCheckpoint(CASE.config, TEMPLATE_SEED)
LAYOUTS = true_layouts(NOISE, CASE.options)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    compile_template(REFERENCE, CASE.config, CASE.options, tmp_path / "template")
    return tmp_path / "template"


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("others")
    compile_model(NoiseCheckpoint(CASE.config, 5), directory, CASE.options)
    return directory


def test_template_describes_itself(template: Path) -> None:
    read = read_template(template)
    assert (read.toolchain, read.seed, read.options, read.model) == (
        "reference",
        TEMPLATE_SEED,
        CASE.options,
        CASE.config,
    )
    files = {path.name: file_sha256(path) for path in template.iterdir() if path.name != TEMPLATE_FILE}
    assert read.files == files
    assert len(files) == 3
    assert [path.name for path in template.parent.iterdir()] == [template.name]


def test_template_holds_noise(template: Path, tmp_path: Path) -> None:
    compile_model(NOISE, tmp_path / "direct", CASE.options)
    for path in (tmp_path / "direct").iterdir():
        assert (template / path.name).read_bytes() == path.read_bytes()


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    class Broken(NoiseCheckpoint):
        def read(self, name: str, rows: slice | None = None):
            if name.endswith("up_proj.weight"):
                raise CheckpointError("gone", where=name)
            return super().read(name, rows)

    with pytest.raises(CheckpointError, match="gone"):
        compile_directory(REFERENCE, Broken(CASE.config, 1), CASE.options, tmp_path / "final", None)
    assert list(tmp_path.iterdir()) == []


def test_true_layouts_are_confirmed(template: Path, others: Path) -> None:
    assert sorted(confirm_template(template, LAYOUTS, others)) == sorted(read_template(template).files)


def test_other_maps_are_not_confirmed(template: Path, tmp_path: Path) -> None:
    other = Case(8)
    directory = tmp_path / "other"
    compile_model(NoiseCheckpoint(CASE.config, 5), directory, other.options)
    with pytest.raises(DecodeRefused, match=r"template/qwen2_p8_l0_together\.axmodel"):
        confirm_template(template, LAYOUTS, directory)


def test_template_of_another_type_is_refused(template: Path, others: Path) -> None:
    """As if its description said s8 and its engines were floats: the layouts are those of s8."""
    options = CompileOptions("s8", kv_cache_len=16, prefill_len=8)
    layouts = {kind: engine_layout(CASE.config, options, kind) for kind in KINDS}
    with pytest.raises(ToolchainError, match=r"l0_together\.axmodel: not an engine of the flags in template\.json"):
        confirm_template(template, layouts, others)


def test_changed_template_is_refused(template: Path, others: Path) -> None:
    post = template / "qwen2_post.axmodel"
    overwrite(post, post.stat().st_size // 2, b"\x55\xaa")
    with pytest.raises(ToolchainError, match=r"qwen2_post\.axmodel.*changed since it was compiled"):
        confirm_template(template, LAYOUTS, others)


def test_missing_engine_is_named(template: Path, others: Path) -> None:
    (template / "qwen2_post.axmodel").unlink()
    with pytest.raises(MissingFileError, match=r"qwen2_post\.axmodel"):
        confirm_template(template, LAYOUTS, others)


def test_template_of_unknown_weights_is_refused(tmp_path: Path, others: Path) -> None:
    compile_directory(REFERENCE, NOISE, CASE.options, tmp_path / "unknown", None)
    with pytest.raises(ToolchainError, match="not known"):
        confirm_template(tmp_path / "unknown", LAYOUTS, others)


def published(folder: Path, kept: tuple[int, ...] = ()) -> Path:
    """A template of a checkpoint in files, as a user of the compiler makes it; or of its trimmed head."""
    write_tiny_gguf(folder / "base.gguf", CASE.config, 5)
    if kept:
        weights = open_weights(folder / "base.gguf", kept=list(kept))
        origin = compiled_from(folder / "base.gguf", kept)
        compile_directory(REFERENCE, weights, CASE.options, folder / "own", origin=origin)
    else:
        compile_published(REFERENCE, open_checkpoint(folder / "base.gguf"), folder / "own", CASE.options)
    return folder / "own"


def test_published_engines_are_a_template_of_known_weights(tmp_path: Path, others: Path) -> None:
    directory = published(tmp_path)
    read = read_template(directory)
    assert read.seed is None
    assert read.checkpoint is not None
    assert (read.checkpoint.path, list(read.checkpoint.files)) == (str(tmp_path / "base.gguf"), ["base.gguf"])
    assert sorted(confirm_template(directory, LAYOUTS, others)) == sorted(read.files)


def test_template_of_a_trimmed_head_knows_its_rows(tmp_path: Path) -> None:
    directory = published(tmp_path, kept=(3, 500, 2))
    weights = template_weights(directory)
    assert weights.config == read_template(directory).model
    assert weights.config.kept_rows == 3
    head = open_checkpoint(tmp_path / "base.gguf").read("lm_head.weight")
    assert np.array_equal(weights.read("lm_head.weight"), head[[3, 500, 2]])
    names = {kind: engine_layout(weights.config, CASE.options, kind) for kind in KINDS}
    compile_model(NoiseCheckpoint(weights.config, 5), tmp_path / "other", CASE.options)
    assert len(confirm_template(directory, names, tmp_path / "other")) == 3


def test_checkpoint_that_changed_or_went_is_named(tmp_path: Path) -> None:
    directory = published(tmp_path)
    write_tiny_gguf(tmp_path / "base.gguf", CASE.config, 6)
    with pytest.raises(ToolchainError, match=r"base\.gguf is not the file that the template was compiled from"):
        template_weights(directory)
    (tmp_path / "base.gguf").unlink()
    with pytest.raises(MissingFileError, match="compiled from is not there"):
        template_weights(directory)


def test_name_of_a_template_is_not_that_of_a_place(tmp_path: Path) -> None:
    template = read_template(published(tmp_path))
    assert template.checkpoint is not None
    moved, other = (msgspec.structs.replace(template.checkpoint, **change) for change in ({"path": "x"}, {"files": {}}))
    assert msgspec.structs.replace(template, checkpoint=moved).name_parts() == template.name_parts()
    assert msgspec.structs.replace(template, checkpoint=other).name_parts() != template.name_parts()


def test_layers_are_confirmed_by_one_of_their_type(tmp_path: Path) -> None:
    """Their RoPE tables differ: a layer that slides is not compared with one that does not."""
    types = {"layer_types": (SLIDING, FULL, SLIDING), "sliding_window": 4, "rope_local_theta": 100.0}
    config = tiny_config("gemma3", num_hidden_layers=3, vocab_size=70, **types)
    assert [single_layer(config, layer) for layer in range(3)] == [0, 1, 0]
    compile_template(REFERENCE, config, CASE.options, tmp_path / "template")
    compile_model(NoiseCheckpoint(config.single(), 5), tmp_path / "other", CASE.options)
    layouts = {kind: engine_layout(config.single(), CASE.options, kind) for kind in KINDS}
    assert len(confirm_template(tmp_path / "template", layouts, tmp_path / "other")) == 5


def changed(**fields: object) -> str:
    known = {"toolchain": "reference", "version": "7.0", "options": CASE.options.as_dict(), "seed": 1, "files": {}}
    return json.dumps(known | {"model": CASE.config.as_dict()} | fields)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", changed(extra=1), changed(model={"architecture": "llama"}), changed(seed="1"), changed(files=[])],
)
def test_description_of_another_form(tmp_path: Path, text: str) -> None:
    (tmp_path / TEMPLATE_FILE).write_text(text)
    with pytest.raises(ToolchainError, match=r"template\.json: not a template"):
        read_template(tmp_path)


def test_options_in_a_description_are_checked(tmp_path: Path) -> None:
    (tmp_path / TEMPLATE_FILE).write_text(changed(options={"chip": "AX999"}))
    with pytest.raises(ToolchainError, match="AX999"):
        read_template(tmp_path)


def test_directory_without_description(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"template\.json"):
        read_template(tmp_path)
