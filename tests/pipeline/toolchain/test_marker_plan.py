"""Which engines a marker build has something to say about, and that nothing else has to be compiled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layouts.sidecar import dump_layout
from pipeline.checkpoint.open import open_checkpoint
from pipeline.engineset.names import engine_file
from pipeline.errors import MissingFileError
from pipeline.toolchain.compilers import REFERENCE
from pipeline.toolchain.decode_files import decode_marker_files
from pipeline.toolchain.kinds import EMBEDDING_ENGINE, KINDS, LAYER, POST_ENGINE
from pipeline.toolchain.marker_files import ENGINES, MarkerFiles, write_marker_files
from pipeline.toolchain.markers import marker_checkpoint, plan_markers
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.template_file import read_template
from pipeline.toolchain.templates import compile_directory
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config("qwen3", num_hidden_layers=1)
OPTIONS = CompileOptions("s4", kv_cache_len=16, prefill_len=8, layout_seed=2)


@pytest.mark.parametrize("weight_type", ["bf16", "s8", "s4"])
@pytest.mark.parametrize("post_type", ["bf16", "s8"])
def test_builds_and_kinds_say_the_same(weight_type: str, post_type: str) -> None:
    plan = plan_markers(CONFIG, weight_type, post_type)
    for kind in KINDS:
        assert plan.builds_of(kind) == tuple(b for b in range(plan.builds + 1) if kind in plan.kinds(b))
        assert plan.builds_of(kind)[-1] == plan.confirm
    assert plan.kinds(0) == plan.kinds(1) == plan.kinds(plan.confirm) == KINDS
    assert all(plan.kinds(build) for build in range(plan.builds))
    assert plan.builds_of(EMBEDDING_ENGINE) == (0, 1, plan.confirm)


def test_engines_number_themselves_apart() -> None:
    """The head of a small vocabulary needs fewer builds than a layer."""
    plan = plan_markers(tiny_config("llama", vocab_size=70), "s8", "s8")
    assert len(plan.builds_of(POST_ENGINE)) < len(plan.builds_of(LAYER)) == plan.builds + 1


def test_a_compiler_that_takes_everything_finds_numbers_in_every_build() -> None:
    plan = plan_markers(CONFIG, "s8", "bf16")
    for build in range(plan.builds):
        checkpoint = marker_checkpoint(plan, build)
        for name in checkpoint.names():
            assert np.isfinite(checkpoint.read(name)).all(), (build, name)


def test_what_is_compiled_is_what_is_asked_for(tmp_path: Path) -> None:
    plan = plan_markers(CONFIG, OPTIONS.weight_type, OPTIONS.post_type)
    checkpoint = marker_checkpoint(plan, 2)
    whole = compile_model(checkpoint, tmp_path / "whole", OPTIONS)
    assert len(whole) == 3
    compile_directory(REFERENCE, checkpoint, OPTIONS, tmp_path / "part", kinds=plan.kinds(2))
    layer = engine_file(CONFIG, OPTIONS.prefill_len, LAYER)
    assert list(read_template(tmp_path / "part").files) == [layer]
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == sorted([layer, "template.json"])
    assert (tmp_path / "part" / layer).read_bytes() == (tmp_path / "whole" / layer).read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MarkerFiles]:
    """Marker files of which only what is needed was compiled."""
    directory = tmp_path_factory.mktemp("made") / "markers"
    markers = write_marker_files(CONFIG, OPTIONS, directory)
    for build in markers.builds:
        checkpoint = open_checkpoint(directory / build.directory)
        compile_model(checkpoint, directory / build.directory / ENGINES, OPTIONS, build.kinds)
    return directory, markers


def test_files_of_the_kinds_that_are_listed_are_enough(made: tuple[Path, MarkerFiles]) -> None:
    directory, markers = made
    assert {build.kinds for build in markers.builds} == {KINDS, (LAYER,)}
    decoded = {engine.layout.kind: engine for engine in decode_marker_files(directory)}
    assert {kind: decoded[kind].builds for kind in KINDS} == {kind: len(markers.plan.builds_of(kind)) for kind in KINDS}


def test_engines_beyond_them_are_no_matter(made: tuple[Path, MarkerFiles]) -> None:
    directory, markers = made
    before = [dump_layout(engine.layout) for engine in decode_marker_files(directory)]
    extra = directory / markers.builds[2].directory / ENGINES / engine_file(CONFIG, OPTIONS.prefill_len, POST_ENGINE)
    extra.write_bytes(b"not read")
    assert [dump_layout(engine.layout) for engine in decode_marker_files(directory)] == before
    extra.unlink()


def test_engine_that_is_needed_is_missed(made: tuple[Path, MarkerFiles]) -> None:
    directory, _ = made
    (engine,) = (directory / "build-1" / ENGINES).glob("*_post.axmodel")
    aside = engine.rename(engine.with_name("aside"))
    with pytest.raises(MissingFileError, match=r"build-1/engines/\*_post\.axmodel"):
        decode_marker_files(directory)
    aside.rename(engine)
