"""Layers that see a window only: their own mask, next to that of the layers that see everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.engineset.names import engine_names
from pipeline.engineset.vendor_config import vendor_files
from pipeline.model import FULL, SLIDING, ModelConfig
from pipeline.native import Runner
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model
from tests.helpers.fake_runtime import Ran, run_fake, write_fake_set
from tests.helpers.gemma import forward, tiny_gemma, window_mask
from tests.helpers.numerics import Float32

TYPES = [SLIDING, FULL, SLIDING]
OFF = 0xC780
CONTEXT = 200  # of the fake's sets
Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def with_window(count: int, window: int, types: list[str] | None = None, *arguments: str) -> Ran:
        config: dict[str, Any] = {"layer_types": types or TYPES, "sliding_window": window}
        tokens = ",".join(str(10 + i) for i in range(count))
        ran = run_fake(write_fake_set(tmp_path / "set", config=config), tmp_path, "--tokens", tokens, *arguments)
        assert ran.code == 0, ran.err
        return ran

    return with_window


def seen(call: dict[str, Any]) -> npt.NDArray[np.bool_]:
    """[tokens, positions] of one call: which positions each row sees, by the columns of its mask."""
    m, history = [[1, 200], [64, 0], [64, 64], [64, 128]][call["group"]]
    columns = np.array(call["mask"]).reshape(m, history + m) != OFF
    first = call["indices"][0]
    positions = np.zeros((m, CONTEXT + m), bool)
    positions[:, : min(first, history)] = columns[:, : min(first, history)]
    assert not columns[:, min(first, history) : history].any(), "a cache row that is not written yet"
    positions[:, first : first + m] = columns[:, history:]
    return positions


@pytest.mark.parametrize("window", [1, 4, 63, 64, 65, 100, 199, 200, 500])
@pytest.mark.parametrize("prefill", [True, False])
def test_windows_every_row_sees_its_own(run: Run, window: int, prefill: bool) -> None:
    ran = run(140, window, None, "--max-tokens", "3", *([] if prefill else ["--no-prefill"]))
    position = 0
    for number, call in enumerate(ran.layer_calls()):
        wide = window_mask(CONTEXT, CONTEXT if TYPES[number % 3] == FULL else window) == 0
        real = len([token for token in call["tokens"] if token])
        found = seen(call)
        assert (found[:real, :CONTEXT] == wide[position : position + real]).all(), (number, position)
        assert not found[real:].any()
        position += real if number % 3 == 2 else 0
    assert position == 142


def copies(ran: Ran) -> int:
    """Host-to-device copies of the last pass through the layers."""
    passes = [i for i, call in enumerate(ran.calls) if call.get("kind") == "layer"][::3]
    start = max(i for i, call in enumerate(ran.calls[: passes[-1]]) if call["call"] == "axclrtEngineExecute")
    return len([c for c in ran.calls[start : passes[-1]] if c["call"] == "axclrtMemcpy" and c["kind"] == 1])


@pytest.mark.parametrize(
    ("types", "window", "masks"),
    [
        ([FULL] * 3, 4, 1),
        ([SLIDING] * 3, 4, 1),
        (TYPES, 4, 2),
        (TYPES, 199, 2),
        (TYPES, 200, 1),  # a window that holds the whole context is none
        (TYPES, 1 << 20, 1),
    ],
)
def test_windows_a_mask_is_made_once_for_all_layers_that_share_it(
    run: Run, types: list[str], window: int, masks: int
) -> None:
    ran = run(3, window, types, "--max-tokens", "2")
    bound = [call["in"]["mask"][0] for call in ran.layer_calls()]
    assert len(set(bound)) == masks
    assert copies(ran) == 2 + masks
    if masks == 2:
        assert bound[0] == bound[2] != bound[1]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"layer_types": [FULL] * 2}, "layer_types: expected a list of 3 (axmodel_num), found a list"),
        ({"layer_types": SLIDING}, 'layer_types: expected a list of 3 (axmodel_num), found "sliding_attention"'),
        (
            {"layer_types": [FULL, "linear_attention", FULL]},
            'layer_types: expected full_attention or sliding_attention, found "linear_attention"',
        ),
        ({"layer_types": [FULL, FULL, 1]}, "layer_types: expected full_attention or sliding_attention, found 1"),
        ({"layer_types": TYPES}, "sliding_window: is missing"),
        ({"layer_types": TYPES, "sliding_window": 0}, "sliding_window: expected 1 to 268435456, found 0"),
        ({"layer_types": TYPES, "sliding_window": "4"}, 'sliding_window: expected 1 to 268435456, found "4"'),
    ],
)
def test_windows_configurations_that_are_refused(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    directory = write_fake_set(tmp_path / "set", config=change)
    ran = run_fake(directory, tmp_path, "--tokens", "1")
    assert (ran.code, ran.err, ran.calls) == (1, [f"{directory}/config.json: {line}"], [])


def test_windows_of_a_set_without_sliding_layers_are_not_asked_for(tmp_path: Path) -> None:
    directory = write_fake_set(tmp_path / "set", config={"layer_types": [FULL] * 3, "sliding_window": None})
    assert run_fake(directory, tmp_path, "--tokens", "1", "--max-tokens", "1").code == 0


def gemma_set(directory: Path, config: ModelConfig) -> Callable[[str], Float32]:
    """Compiles the model; returns its weights by name."""
    source = NoiseCheckpoint(config, 1)
    options = CompileOptions(kv_cache_len=192, prefill_len=64, layout_seed=3)
    compile_model(source, directory, options)
    for name, content in vendor_files("tiny", config, engine_names(config, options.prefill_len), None).items():
        (directory / name).write_bytes(content)
    assert json.loads((directory / "config.json").read_text())["layer_types"] == list(config.layer_types)
    return source.read


@pytest.mark.parametrize("window", [4, 64, 100])
def test_windows_gemma_has_the_oracles_bits(tmp_path: Path, window: int) -> None:
    config = tiny_gemma(window)
    tokens = np.random.default_rng(window).integers(3, 300, 140).tolist()
    expected = forward(config, gemma_set(tmp_path / "set", config), tokens)
    with Runner(tmp_path / "set") as runner:
        for prefill in (True, False):
            runner.score(tokens, logits=tmp_path / "logits", prefill=prefill)
            found = np.fromfile(tmp_path / "logits", "<u2").reshape(140, 300)
            assert (found == expected).all(), f"first in row {np.argmax((found != expected).any(axis=1))}"
        assert not any(runner.report()["breaches"].values())


def test_windows_show_in_the_oracle(tmp_path: Path) -> None:
    """Another window gives other logits as soon as it is full, so the equality above means something."""
    tokens = list(range(3, 23))
    read = NoiseCheckpoint(tiny_gemma(4), 1).read
    four, five = (forward(tiny_gemma(window), read, tokens) for window in (4, 5))
    assert (four[:4] == five[:4]).all() and (four[4:] != five[4:]).any(axis=1).all()
