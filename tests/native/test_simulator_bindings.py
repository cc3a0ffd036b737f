"""The binding contract: what the card takes silently and wrongly is counted, returns 0 and gives NaN."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

from tests.helpers.layer_engines import SMALL, LayerEngine, bound_call, compile_layer, layer_inputs
from tests.helpers.simulator import Call, card
from tests.helpers.tiny import tiny_config


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LayerEngine:
    return compile_layer(tmp_path_factory.mktemp("small"), tiny_config("qwen3", **SMALL))


@pytest.fixture
def bound(small: LayerEngine) -> Iterator[Call]:
    with card() as one:
        yield bound_call(one, small)


def test_a_sound_call_is_no_breach(bound: Call, small: LayerEngine) -> None:
    assert bound.execute() == 0 and bound.breaches() == {}
    assert (bound.output() == small.expected(bound.inputs)["output"].ravel()).all()


def test_a_cache_row_of_the_decode_group_is_a_place_for_its_output(bound: Call, small: LayerEngine) -> None:
    row = small.config.kv_width * 2
    for which in "KV":
        bound.rebind("Output", f"{which}_cache_out", bound.at[f"{which}_cache"] + 20 * row, row)
    assert bound.execute() == 0 and bound.breaches() == {}
    expected = small.expected(bound.inputs)
    assert (bound.output() == expected["output"].ravel()).all()
    assert bound.card.get(bound.at["K_cache"] + 20 * row, row) == expected["K_cache_out"].tobytes()


def spoil_unbound(call: Call) -> None:
    call.io = call.loaded.io()
    call.rebind("Output", "output", call.at["output"], call.loaded.size("Output", 0, 2))


def spoil_size(call: Call) -> None:
    call.rebind("Input", "mask", call.at["mask"], call.loaded.size("Input", 0, 4) - 2)


def spoil_interior(call: Call) -> None:
    bigger = call.card.put(b"\0" * 4096)
    call.rebind("Input", "mask", bigger + 2, call.loaded.size("Input", 0, 4))


def spoil_row_alignment(call: Call) -> None:
    call.rebind("Output", "K_cache_out", call.at["K_cache"] + 2, call.loaded.size("Output", 0, 0))


def spoil_alias(call: Call) -> None:
    call.rebind("Input", "input", call.at["output"], call.loaded.size("Input", 0, 3))


def spoil_shared_output(call: Call) -> None:
    call.rebind("Output", "V_cache_out", call.at["K_cache_out"], call.loaded.size("Output", 0, 1))


def spoil_short_buffer(call: Call) -> None:
    call.rebind("Input", "K_cache", call.card.put(b"\0" * 64), call.loaded.size("Input", 0, 0))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (spoil_unbound, {"unbound": 7}),
        (spoil_size, {"size_mismatch": 1}),
        (spoil_interior, {"interior_pointer": 1}),
        (spoil_row_alignment, {"interior_pointer": 1}),
        (spoil_alias, {"output_aliases_input": 1}),
        (spoil_shared_output, {"outputs_overlap": 1}),
        (spoil_short_buffer, {"beyond_allocation": 1}),
    ],
)
def test_a_breach_is_counted_returns_0_and_poisons_the_output(
    bound: Call, spoil: Callable[[Call], None], expected: dict[str, int]
) -> None:
    assert bound.execute() == 0
    assert (bound.output() != 0xFFFF).any()
    spoil(bound)
    assert bound.execute() == 0
    assert bound.breaches() == expected
    assert (bound.output() == 0xFFFF).all()


def test_one_io_for_two_groups_is_a_breach(small: LayerEngine) -> None:
    with card() as one:
        call = bound_call(one, small, group=1)
        assert call.execute() == 0
        call.loaded.bind(call.io, 2, {name: array.tobytes() for name, array in layer_inputs(small, 64, 64, 20).items()})
        assert call.execute(group=2) == 0
        assert call.breaches() == {"io_two_groups": 1}


def test_host_pointers_and_freed_memory_fail(bound: Call) -> None:
    host = ctypes.create_string_buffer(4096)
    bound.rebind("Input", "input", ctypes.addressof(host), bound.loaded.size("Input", 0, 3))
    assert bound.execute() == 0x8030070C
    bound.rebind("Input", "input", bound.at["input"], bound.loaded.size("Input", 0, 3))
    bound.card.lib.ok("axclrtFree", bound.at["input"])
    assert bound.execute() == 0x8030070C


def test_wrong_ids_and_groups_are_refused(bound: Call) -> None:
    lib, model, context = bound.card.lib, bound.loaded.model, bound.loaded.context
    assert bound.execute(group=77) == 0x80300781
    assert lib("axclrtEngineExecute", model, context + 100, 0, bound.io) == 0x80300703
    assert lib("axclrtEngineExecute", model + 100, context, 0, bound.io) == 0x80300703
    lib.ok("axclrtEngineUnload", model)
    assert bound.execute() == 0x80300703


def test_a_position_beyond_the_rope_table_is_counted(bound: Call, small: LayerEngine) -> None:
    bound.card.lib.ok("axclrtMemcpy", bound.at["indices"], np.uint32(small.rows + 1).tobytes(), 4, 1)
    assert bound.execute() == 0
    assert bound.breaches() == {"position_beyond_table": 2}


def test_the_cost_of_a_call_is_modelled(bound: Call, small: LayerEngine) -> None:
    before = bound.card.report()
    assert bound.execute() == 0
    after = bound.card.report()
    blobs = {blob.name: len(blob.raw_data) for blob in onnx.load(small.path).graph.initializer}
    streamed = blobs["npu_params"] + 2 * small.rows * small.config.kv_width * 2
    assert after["executes"] - before["executes"] == 1
    assert after["modelled_us"] - before["modelled_us"] == pytest.approx(457 + streamed / 25e3, abs=0.01)
    assert after["measured_us"] > before["measured_us"]
