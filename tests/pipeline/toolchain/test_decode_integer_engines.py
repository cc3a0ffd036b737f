"""Integer engines of the reference compiler, decoded from their weight blobs alone: the layout is the compiler's own map."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from layouts.sidecar import dump_layout
from layouts.stored import EngineLayout
from pipeline.errors import DecodeRefused
from pipeline.model import ModelConfig
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.kinds import KINDS, LAYER, POST_ENGINE
from pipeline.toolchain.markers import MarkerPlan, marker_checkpoint, plan_markers
from pipeline.toolchain.options import CompileOptions
from tests.helpers.engines import build_markers, engines_of, overwrite_microcode, true_layouts
from tests.helpers.tiny import tiny_config

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
TYPES: tuple[dict[str, Any], ...] = (
    {"weight_type": "s8", "post_weight_type": "s8", "scale_rule": "row/127"},
    {"weight_type": "s8", "post_weight_type": "s4", "scale_rule": "row/127.5"},
    {"weight_type": "s8", "post_weight_type": "s8", "scale_rule": "group/127"},
    {"weight_type": "s4", "post_weight_type": "bf16", "scale_type": "bf16"},
    {"weight_type": "s4", "post_weight_type": "s8", "scale_type": "fp16", "scale_rule": "group/127.5"},
)
# widths that divide by nothing, matrices of few rows, last groups of one column
SHAPES: tuple[dict[str, int], ...] = (
    {},
    {"hidden_size": 257, "head_dim": 36, "num_attention_heads": 1, "intermediate_size": 255, "vocab_size": 31},
    {"hidden_size": 255, "head_dim": 34, "num_attention_heads": 3, "intermediate_size": 257, "vocab_size": 1},
    {"hidden_size": 37, "head_dim": 32, "num_attention_heads": 2, "intermediate_size": 33, "vocab_size": 17},
    {"hidden_size": 36, "head_dim": 36, "num_attention_heads": 1, "intermediate_size": 129, "vocab_size": 15},
)


@dataclass(frozen=True)
class IntegerCase:
    """One way to compile a tiny model to integers."""

    seed: int
    kind: int

    def __str__(self) -> str:
        return f"seed{self.seed}-{self.config.architecture}-{'-'.join(map(str, TYPES[self.kind].values()))}"

    @property
    def config(self) -> ModelConfig:
        shape = SHAPES[(self.seed + self.kind) % len(SHAPES)]
        arch = ARCHITECTURES[(self.seed + self.kind) % len(ARCHITECTURES)]
        return tiny_config(arch, num_hidden_layers=2, bos_token_id=None, eos_token_ids=(), **shape)

    @property
    def options(self) -> CompileOptions:
        corrections, folded = (0.3, 1.0, 0.0)[self.seed % 3], self.seed % 2 == 1
        common = {"corrections": corrections, "fold_norms": folded, "prefill_share": (0.4, 1.0)[self.seed % 2]}
        return CompileOptions(kv_cache_len=16, prefill_len=8, layout_seed=self.seed, **common, **TYPES[self.kind])

    @property
    def plan(self) -> MarkerPlan:
        return plan_markers(self.config, self.options.weight_type, self.options.post_type)


CASES = [IntegerCase(seed, kind) for seed in range(20) for kind in range(len(TYPES))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoded_layout_is_the_true_map(tmp_path: Path, case: IntegerCase) -> None:
    builds = build_markers(tmp_path, case)
    true = true_layouts(marker_checkpoint(case.plan, case.plan.confirm), case.options)
    for kind in KINDS:
        check_same(decode_builds(case.plan, kind, engines_of(builds, case, kind)), true[kind])


def check_same(found: EngineLayout, true: EngineLayout) -> None:
    assert (found.blob_bytes, found.blob_offset) == (true.blob_bytes, true.blob_offset)
    assert set(found.names()) == set(true.names())
    for expected in true.tensors:
        stored = found[expected.name]
        assert (stored.shape, stored.codec, stored.folded) == (expected.shape, expected.codec, expected.folded)
        assert _meaning(stored) == _meaning(expected)
        assert [copy.name for copy in stored.copies] == [copy.name for copy in expected.copies]
        for ours, theirs in zip(stored.copies, expected.copies, strict=True):
            assert _fields(ours, stored.shape[0]).keys() == _fields(theirs, stored.shape[0]).keys()
            for key, places in _fields(theirs, stored.shape[0]).items():
                assert np.array_equal(_fields(ours, stored.shape[0])[key], places), (stored.name, ours.name, key)
            check_entries(ours, theirs, expected)


def check_entries(ours: Any, theirs: Any, stored: Any) -> None:
    """Under a rule of rows the entries of a row are one class: their places are equal as a set."""
    if theirs.entries is None:
        assert ours.entries is None
        return
    found, expected = (copy.entries.addresses(0, stored.shape[0]) for copy in (ours, theirs))
    if stored.scales.shared:
        found, expected = np.sort(found, axis=1), np.sort(expected, axis=1)
    assert np.array_equal(found, expected), (stored.name, ours.name)


def _meaning(stored: Any) -> Any:
    """The rule; in rows of one group it makes no difference what it is taken over."""
    if stored.scales is None:
        return None
    scales, groups = stored.scales, stored.scales.groups(stored.shape[1])
    return scales.entry, scales.group, scales.divisor, scales.shared if groups > 1 else None


def _fields(copy: Any, rows: int) -> dict[tuple[int, int, int], npt.NDArray[np.int64]]:
    return {(plane.low_bit, plane.bits, plane.bias): plane.addresses(0, rows) for plane in copy.planes}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[IntegerCase, list[Path]]:
    case = IntegerCase(6, 0)
    return case, build_markers(tmp_path_factory.mktemp("markers"), case)


def test_microcode_has_no_part_in_it(built: tuple[IntegerCase, list[Path]], tmp_path: Path) -> None:
    case, builds = built
    for kind in (LAYER, POST_ENGINE):
        engines = engines_of(builds, case, kind)
        noisy = [tmp_path / f"{build}-{engine.name}" for build, engine in enumerate(engines)]
        for build, (engine, copy) in enumerate(zip(engines, noisy, strict=True)):
            copy.write_bytes(engine.read_bytes())
            overwrite_microcode(copy, 17 * build)
        assert dump_layout(decode_builds(case.plan, kind, noisy)) == dump_layout(
            decode_builds(case.plan, kind, engines)
        )


def test_swapped_builds_are_refused(built: tuple[IntegerCase, list[Path]]) -> None:
    case, builds = built
    engines = engines_of(builds, case, LAYER)
    engines[1], engines[3] = engines[3], engines[1]
    with pytest.raises(DecodeRefused) as caught:
        decode_builds(case.plan, LAYER, engines)
    assert str(caught.value).startswith(str(engines[0]))


def test_too_few_builds_are_refused(built: tuple[IntegerCase, list[Path]]) -> None:
    case, builds = built
    expected = case.plan.builds + 1
    with pytest.raises(DecodeRefused, match=rf"expected {expected}, found {expected - 1}"):
        decode_builds(case.plan, LAYER, engines_of(builds[1:], case, LAYER))


def test_builds_that_a_model_needs() -> None:
    """SmolLM2's layer and head, and the largest engine that 7 builds of s8 can number."""
    sizes = {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536}
    config = tiny_config("llama", vocab_size=49_152, **sizes)
    assert plan_markers(config, "s8", "bf16").builds == 6
    assert plan_markers(config, "s8", "s8").builds == 7
    assert plan_markers(config, "s4", "bf16").builds == 6
    assert plan_markers(config, "bf16", "bf16").builds == 2
    largest = tiny_config("llama", hidden_size=512, vocab_size=1 << 18, head_dim=64, num_attention_heads=8)
    assert plan_markers(largest, "s8", "s8").builds == 7
