"""Finished templates, and templates of a checkpoint, that do not fit: refused on one line before anything is compiled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.checkpoint.open import open_checkpoint
from pipeline.toolchain.compilers import compile_published
from pipeline.toolchain.options import CompileOptions
from tests.helpers.sets import Tiny, build_tiny, check_refusal, make_tiny, write_config


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A built set, whose templates other builds may name."""
    return build_tiny(tmp_path_factory.mktemp("whole"))


SIZES = {
    "intermediate_size": (896, r"tiny\.gguf: intermediate_size: the template has 864, the source has 896"),
    "hidden_size": (256, r"tiny\.gguf: hidden_size: the template has 320, the source has 256"),
    "vocab_size": (1001, r"tiny\.gguf: vocab_size: the template has 1000, the source has 1001"),
    "num_hidden_layers": (1, r"tiny\.gguf: num_hidden_layers: the template has 2, the source has 1"),
    "rope_theta": (500000.0, r"tiny\.gguf: rope_theta: the template has 10000\.0, the source has 500000\.0"),
}


@pytest.mark.parametrize("field", SIZES)
def test_finished_templates_of_other_dimensions(tmp_path: Path, whole: Tiny, field: str) -> None:
    value, reason = SIZES[field]
    tiny = make_tiny(tmp_path, **{field: value})
    (template,) = (whole.build / "templates").iterdir()
    tiny.config.write_text(
        f'name = "tiny"\narchitecture = "qwen2"\n[source]\npath = "tiny.gguf"\n[templates]\ndir = "{template}"\n'
    )
    check_refusal(tiny, tiny.luigi(), [reason])
    check_nothing_was_compiled(tiny)


def check_nothing_was_compiled(tiny: Tiny) -> None:
    """What headers alone show is told before anything is made that takes its time."""
    assert {path.name for path in tiny.build.iterdir()} <= {"hashes.sqlite", "locks", "sources"}


def test_templates_compiled_from_another_family(tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path)
    make_tiny(tmp_path / "base", "qwen3", intermediate_size=96, vocab_size=70)
    write_config(tiny.config, "qwen2", checkpoint={"path": "base/tiny.gguf"})
    sides = ("architecture", "qwen3", "qwen2"), ("intermediate_size", 96, 864), ("vocab_size", 70, 1000)
    check_refusal(
        tiny, tiny.luigi(), [rf"tiny\.gguf: {f}: the template has {a}, the source has {b}" for f, a, b in sides]
    )
    check_nothing_was_compiled(tiny)


def test_finished_templates_of_a_whole_head_for_a_trimmed_one(tmp_path: Path, whole: Tiny) -> None:
    tiny = make_tiny(tmp_path)
    (tmp_path / "ids.json").write_text("[5, 2, 7]")
    (template,) = (whole.build / "templates").iterdir()
    tiny.config.write_text(
        'name = "tiny"\narchitecture = "qwen2"\nvocab_keep = "ids.json"\n'
        f'[source]\npath = "tiny.gguf"\n[templates]\ndir = "{template}"\n'
    )
    check_refusal(tiny, tiny.luigi(), [r"ids\.json: vocab_keep: .* whole vocabulary: leave .*1000 rows, found 3 rows"])
    check_nothing_was_compiled(tiny)


@pytest.mark.parametrize("what", ["gone", "another", "unknown"])
def test_finished_templates_whose_weights_cannot_be_read(tmp_path: Path, what: str) -> None:
    base = make_tiny(tmp_path / "base").gguf
    template = tmp_path / "finished"
    compile_published("reference", open_checkpoint(base), template, CompileOptions(kv_cache_len=32, prefill_len=8))
    tiny = make_tiny(tmp_path, seed=2)
    tiny.config.write_text(
        'name = "tiny"\narchitecture = "qwen2"\n[source]\npath = "tiny.gguf"\n[templates]\ndir = "finished"\n'
    )
    if what == "gone":
        base.unlink()
    elif what == "another":
        base.write_bytes(tiny.gguf.read_bytes())
    else:
        described = json.loads((template / "template.json").read_text()) | {"checkpoint": None}
        (template / "template.json").write_text(json.dumps(described))
    reasons = {
        "gone": r"base/tiny\.gguf: .*is not there",
        "another": r"is not the file that",
        "unknown": "are not known",
    }
    check_refusal(tiny, tiny.luigi(), [reasons[what]])
    check_nothing_was_compiled(tiny)


def test_templates_that_are_not_there(tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path)
    tiny.config.write_text(
        'name = "tiny"\narchitecture = "qwen2"\n[source]\npath = "tiny.gguf"\n[templates]\ndir = "none"\n'
    )
    check_refusal(tiny, tiny.luigi(), [r"none/template\.json: "])
