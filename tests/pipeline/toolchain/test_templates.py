"""Template sets: written whole, described, and confirmed against the noise that they hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.errors import CheckpointError, DecodeRefused, MissingFileError, ToolchainError
from pipeline.files import file_sha256
from pipeline.toolchain.compilers import REFERENCE
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.template_file import TEMPLATE_FILE, read_template
from pipeline.toolchain.templates import TEMPLATE_SEED, compile_directory, compile_template, confirm_template
from tests.helpers.engines import Case, overwrite, true_layouts

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
