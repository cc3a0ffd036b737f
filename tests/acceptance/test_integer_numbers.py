"""What sets of integer engines compute: the same bits everywhere, and what the control says of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.acceptance.test_same_bits_everywhere import instruction_sets
from tests.helpers.integer_sets import S4, S8, make_set, small_config
from tests.helpers.running import greedy, logits, nll_bits
from tests.helpers.sets import Tiny, built

WINDOW = 20
GEMMA = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": WINDOW, "rope_local_theta": 10000.0}
RUNNING = {"kv_cache_len": 192, "prefill_len": 64}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gemma3", GEMMA, S8 | {"layout_seed": 0}),
    ("llama", {"hidden_size": 37, "intermediate_size": 255}, S8 | {"layout_seed": 4, "scale_rule": "group/127"}),
    ("qwen3", {"hidden_size": 257, "intermediate_size": 31}, S4 | {"layout_seed": 3, "scale_type": "fp16"}),
    ("qwen2", {}, S4 | {"layout_seed": 0, "fold_norms": True}),
]
IDS = [int(token) for token in np.random.default_rng(3).integers(3, 70, 150)]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[2]['weight_type']}")
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    arch, sizes, flags = request.param
    made = make_set(tmp_path_factory.mktemp("numbers"), small_config(arch, **sizes), 1, **RUNNING, **flags)
    built(made)
    return made


def test_threads_instruction_sets_and_prefill_change_no_bit(tiny: Tiny) -> None:
    bits = nll_bits(tiny.set, IDS)
    assert nll_bits(tiny.set, IDS, prefill=False) == bits
    for isa in instruction_sets():
        for threads in ("1", "5"):
            environment = {"ENGINESET_SIM_THREADS": threads, "ENGINESET_SIM_ISA": isa}
            assert nll_bits(tiny.set, IDS, environment=environment) == bits, (isa, threads)


def test_greedy_tokens_are_the_argmax_of_the_logits(tiny: Tiny, tmp_path: Path) -> None:
    chosen = greedy(tiny.set, IDS[:70], 8)
    rows = logits(tiny.set, [*IDS[:70], *chosen], tmp_path)[69:-1]
    assert chosen == [int(row.argmax()) for row in rows]


def last_row(directory: Path, ids: list[int], folder: Path) -> npt.NDArray[np.float32]:
    return logits(directory, ids, folder)[-1]


def test_sliding_layers_see_their_window_and_no_more(tmp_path: Path) -> None:
    """With every layer sliding, a token further back than the windows of all layers together changes nothing."""
    sizes = GEMMA | {"layer_types": ("sliding_attention", "sliding_attention")}
    made = make_set(tmp_path / "all", small_config("gemma3", **sizes), 1, **RUNNING, **S8, layout_seed=2)
    built(made)
    far, near = list(IDS), list(IDS)
    far[len(IDS) - 1 - 2 * (WINDOW - 1) - 1] ^= 1
    near[len(IDS) - 1 - 2 * (WINDOW - 1)] ^= 1
    plain = last_row(made.set, IDS, tmp_path)
    assert np.array_equal(last_row(made.set, far, tmp_path), plain)
    assert not np.array_equal(last_row(made.set, near, tmp_path), plain)
