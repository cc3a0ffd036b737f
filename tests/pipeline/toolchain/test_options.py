"""Flags that contradict each other are refused before anything is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.checkpoint.open import open_checkpoint
from pipeline.cli.compile import llm_build
from pipeline.errors import ToolchainError
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.tiny import tiny_config, write_tiny_hf


def test_fp32_is_not_truncated() -> None:
    line = r"rounding: not supported here \(expected nearest, found truncate\)"
    with pytest.raises(ToolchainError, match=line):
        CompileOptions(weight_type="fp32", rounding="truncate")
    assert CompileOptions(weight_type="bf16", rounding="truncate").rounding == "truncate"
    assert CompileOptions(weight_type="fp32").rounding == "nearest"


@pytest.mark.parametrize(("post", "folds"), [("", False), ("fp32", False), ("s8", True), ("s4", True)])
def test_heads_of_floats_have_no_norm_folded(post: str, folds: bool) -> None:
    options = CompileOptions(weight_type="s8", post_weight_type=post, fold_norms=True)
    assert (options.folds("layer"), options.folds("post"), options.folds("embedding")) == (True, folds, False)


def test_the_command_has_a_flag_for_every_option_with_the_same_default() -> None:
    words = ["--input_path", "here", "--output_path", "there"]
    given = llm_build.make_context("llm-build", words).params
    assert {name: given[name] for name in CompileOptions().as_dict()} == CompileOptions().as_dict()


def test_the_command_compiles_integer_engines(tmp_path: Path) -> None:
    write_tiny_hf(tmp_path / "hf", tiny_config("gemma3", num_hidden_layers=1), 1)
    words = "-w s8 --post_weight_type s4 --scale_rule group/127 --scale_type fp16 --fold_norms --prefill_share 0"
    words += " --corrections 0.5 --layout-seed 3 --kv_cache_len 16 --prefill_len 8 -c 0 --parallel 8"
    paths = ["--input_path", str(tmp_path / "hf"), "--output_path", str(tmp_path / "out")]
    result = CliRunner().invoke(llm_build, [*paths, *words.split()], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    options = CompileOptions("s8", 16, 8, (), "AX650", 3, "nearest", "s4", "group/127", "fp16", True, 0.0, 0.5)
    source = open_checkpoint(tmp_path / "hf")
    for path in compile_model(source, tmp_path / "direct", options):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()
