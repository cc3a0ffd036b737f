"""Sets of integer engines: what a refit leaves in a template is what a compile of the same weights writes, to the byte."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.model import ModelConfig
from tests.helpers.integer_sets import S4, S8, compile_directly, engine_bytes, make_set, small_config, write_source
from tests.helpers.sets import Tiny, built, contents, engineset
from tests.helpers.tiny import tiny_config, tiny_weights


@dataclass(frozen=True)
class Case:
    """An architecture, flags of the compiler, sizes."""

    arch: str
    flags: dict[str, Any]
    sizes: dict[str, Any] = field(default_factory=dict)
    qtype: str = "F32"

    @property
    def config(self) -> ModelConfig:
        return (
            tiny_config(self.arch, **(self.sizes | {"num_hidden_layers": 2})) if self.sizes else small_config(self.arch)
        )

    def __str__(self) -> str:
        return "-".join([self.arch, *map(str, self.flags.values()), *map(str, self.sizes.values())])


ODD = {"vocab_size": 333}  # hidden 320, 5 heads, FFN 864
SHORT = {
    "hidden_size": 37,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "intermediate_size": 31,
    "vocab_size": 33,
}
LONG = SHORT | {"hidden_size": 257, "intermediate_size": 255, "vocab_size": 65}
CASES = [
    Case("llama", S8 | {"layout_seed": 0}, ODD, "Q4_K"),
    Case("llama", S8 | {"layout_seed": 7, "scale_rule": "row/127.5"}),
    Case("qwen2", S8 | {"layout_seed": 11, "scale_rule": "group/127"}, LONG),
    Case("qwen3", {"weight_type": "s8", "layout_seed": 4, "scale_rule": "group/127.5", "prefill_share": 0.9}),
    Case("qwen2", S8 | {"layout_seed": 5, "fold_norms": True}, SHORT),
    Case("gemma3", S8 | {"layout_seed": 8}),
    Case("llama", S4 | {"layout_seed": 0, "scale_type": "fp16"}, ODD, "Q6_K"),
    Case("gemma3", {"weight_type": "s4", "post_weight_type": "s8", "layout_seed": 3, "fold_norms": True}),
    Case("qwen3", S4 | {"layout_seed": 9}, LONG),
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def tiny(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A set in templates of noise, whose compiler corrected one element in every row."""
    made = make_set(tmp_path_factory.mktemp("set"), case.config, 1, corrections=1, **case.flags)
    if case.qtype != "F32":
        made.gguf.unlink()
        write_source(made.gguf, case.config, tiny_weights(case.config, 1), case.qtype)
    built(made)
    return made


def test_refit_is_what_a_compile_of_the_same_weights_is(case: Case, tiny: Tiny, tmp_path: Path) -> None:
    fresh = compile_directly(tiny.gguf, tmp_path / "fresh", corrections=0, **case.flags)
    found = engine_bytes(tiny.set)
    assert found.keys() == fresh.keys()
    assert [name for name in fresh if found[name] != fresh[name]] == []


def test_every_weight_is_read_back(tiny: Tiny) -> None:
    done = engineset("verify", tiny.set, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["elements"] > 0


def test_a_then_b_then_a_is_a(case: Case, tiny: Tiny, tmp_path: Path) -> None:
    first = contents(tiny.set)
    other = write_source(tmp_path / "other.gguf", case.config, tiny_weights(case.config, 2))
    built(tiny, "--gguf", other)
    assert engine_bytes(tiny.set) != {name: first[name] for name in engine_bytes(tiny.set)}
    target = (tiny.build / "sets" / "tiny").resolve()
    shutil.rmtree(next(path for path in tiny.build.glob("sets/tiny-*") if path != target))
    built(tiny)
    assert contents(tiny.set) == first
