"""What integer engines cannot hold is named; what is large passes by ranges of rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Float32
from pipeline.errors import NotFiniteError
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import ReferenceCompiler, compile_model
from tests.helpers.tiny import tiny_config

PLAIN = CompileOptions("s8", kv_cache_len=16, prefill_len=8, post_weight_type="s8")


class Spoilt(NoiseCheckpoint):
    """Noise with one row of the head changed."""

    change: Callable[[Float32], None]

    def read(self, name: str, rows: slice | None = None) -> Float32:
        values = super().read(name, rows)
        if name == "lm_head.weight" and rows is not None and rows.start <= 900 < rows.stop:
            self.change(values[900 - rows.start])
        return values


def _tiny(row: Float32) -> None:
    row[:] = 1e-38


def _tiny_group(row: Float32) -> None:
    row[256:] = 1e-42


def _huge(row: Float32) -> None:
    row[300] = 3.4e38


@pytest.mark.parametrize(
    ("change", "options", "line"),
    [
        (_tiny, PLAIN, r"row 900.*0 or infinite"),
        (_tiny_group, replace(PLAIN, scale_rule="group/127"), r"row 900.*group 1.*0 or infinite"),
        (_huge, replace(PLAIN, weight_type="s4", post_weight_type="s4", scale_type="fp16"), r"row 900.*group 2"),
    ],
)
def test_a_scale_that_no_entry_holds_is_named(
    tmp_path: Path, change: Callable[[Float32], None], options: CompileOptions, line: str
) -> None:
    source = Spoilt(tiny_config("llama", num_hidden_layers=1), 1)
    source.change = change
    with pytest.raises(NotFiniteError, match=rf"^noise-1: lm_head.weight: {line}"):
        compile_model(source, tmp_path, options)
    assert not list(tmp_path.glob("*post*"))


def test_large_matrices_pass_by_ranges_of_rows(tmp_path: Path) -> None:
    config = tiny_config("llama", num_hidden_layers=1, vocab_size=20_000)
    compiler = ReferenceCompiler(NoiseCheckpoint(config, 1), tmp_path, PLAIN)
    tracemalloc.start()
    compiler.compile_post()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * config.vocab_size * config.hidden_size
