"""Whole-layer engines: results against the oracle, IO information, injected faults, concurrency."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.layer_engines import SMALL, Inputs, LayerEngine, bound_call, compile_layer, layer_inputs
from tests.helpers.simulator import CARD, Card, DeviceList, Loaded, card, instruction_sets
from tests.helpers.tiny import tiny_config


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LayerEngine:
    return compile_layer(tmp_path_factory.mktemp("small"), tiny_config("qwen3", **SMALL))


def decode_inputs(engine: LayerEngine, filled: int = 20) -> Inputs:
    return layer_inputs(engine, 1, engine.rows, filled)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_layer_has_the_oracles_bits_on_every_instruction_set(tmp_path: Path, arch: str) -> None:
    engine = compile_layer(tmp_path, tiny_config(arch))
    cases = [(0, layer_inputs(engine, 1, engine.rows, 100, seed=1)), (2, layer_inputs(engine, 64, 64, 50, seed=2))]
    expected = [engine.expected(inputs) for _, inputs in cases]
    for isa in instruction_sets():
        for threads in (1, 2, 3):
            with card(isa=isa, threads=threads) as one:
                loaded = one.load(engine.path)
                for (group, inputs), wanted in zip(cases, expected, strict=True):
                    found = loaded.run(group, inputs)
                    for name, bits in wanted.items():
                        assert (found[name] == bits.ravel()).all(), f"{isa}, {threads} threads, group {group}: {name}"


def test_a_chunk_has_the_bits_of_single_tokens(small: LayerEngine) -> None:
    inputs = layer_inputs(small, 64, 64, 64, seed=5)
    with card() as one:
        loaded = one.load(small.path)
        chunk = loaded.run(2, inputs)
        kv, hidden = small.config.kv_width, small.config.hidden_size
        caches = {name: np.zeros((small.rows, kv), np.uint16) for name in ("K_cache", "V_cache")}
        for name, cache in caches.items():
            cache[:64] = inputs[name]
        for row in range(64):
            single = decode_inputs(small, 64 + row)
            single |= caches
            single["input"] = inputs["input"][row]
            found = loaded.run(0, single)
            assert (found["output"] == chunk["output"].reshape(64, hidden)[row]).all()
            for which in "KV":
                assert (found[f"{which}_cache_out"] == chunk[f"{which}_cache_out"].reshape(64, kv)[row]).all()
                caches[f"{which}_cache"][64 + row] = found[f"{which}_cache_out"]


def test_small_chunks_leave_output_untouched(tmp_path: Path) -> None:
    engine = compile_layer(tmp_path, tiny_config("llama", **SMALL), rows=32, chunk=8)
    inputs = layer_inputs(engine, 8, 8, 8)
    with card() as one:
        found = one.load(engine.path).run(2, inputs)
    expected = engine.expected(inputs)
    assert (found["K_cache_out"] == expected["K_cache_out"].ravel()).all()
    assert (found["output"] == 0xFFFF).all()


def test_io_information_names_group_0_and_sizes_every_group(small: LayerEngine) -> None:
    with card() as one:
        loaded, lib = one.load(small.path), one.lib
        assert loaded.inputs == ["K_cache", "V_cache", "indices", "input", "mask"]
        assert loaded.outputs == ["K_cache_out", "V_cache_out", "output"]
        assert lib("axclrtEngineGetModelCompilerVersion", loaded.model).startswith(b"7.0")
        count = ctypes.c_int32()
        lib.ok("axclrtEngineGetShapeGroupsCount", loaded.info, ctypes.byref(count))
        assert count.value == len(small.groups())
        for group, (tokens, history) in enumerate(small.groups()):
            assert loaded.size("Input", group, 0) == max(history, 1) * small.config.kv_width * 2
            assert loaded.size("Input", group, 4) == tokens * (tokens + history) * 2
            dims = (ctypes.c_int32 * 33)()
            lib.ok("axclrtEngineGetOutputDims", loaded.info, group, 2, dims)
            assert list(dims[:4]) == [3, 1, tokens, small.config.hidden_size]
        kind = ctypes.c_int32()
        lib.ok("axclrtEngineGetInputDataType", loaded.info, 2, ctypes.byref(kind))
        assert kind.value == 8
        assert loaded.size("Input", 99, 0) == loaded.size("Output", 0, 3) == 0xFFFFFFFF80300781
        assert lib("axclrtEngineGetInputDims", loaded.info, 0, 5, dims) == 0x80300781
        assert lib("axclrtEngineGetInputNameByIndex", loaded.info, 5) is None
        assert lib("axclrtEngineGetInputIndexByName", loaded.info, b"mask") == 4
        assert lib("axclrtEngineGetInputIndexByName", loaded.info, b"nothing") == 0x80300703


def test_io_objects_check_indices_and_nothing_else(small: LayerEngine) -> None:
    with card() as one:
        loaded, lib = one.load(small.path), one.lib
        io = loaded.io()
        assert lib("axclrtEngineSetInputBufferByIndex", io, 5, 1, 1) == 0x80300703
        assert lib("axclrtEngineSetInputBufferByIndex", io, 0, None, 1) == 0x80300702
        assert lib("axclrtEngineSetInputBufferByIndex", io, 0, 1, 0) == 0x80300703
        assert lib("axclrtEngineSetInputBufferByName", io, b"nothing", 1, 1) == 0x80300703
        lib.ok("axclrtEngineSetInputBufferByName", io, b"mask", 123, 456)
        address, size = ctypes.c_uint64(), ctypes.c_uint64()
        lib.ok("axclrtEngineGetInputBufferByIndex", io, 4, ctypes.byref(address), ctypes.byref(size))
        assert (address.value, size.value) == (123, 456)
        lib.ok("axclrtEngineSetDynamicBatchSize", io, 0)


def test_every_nth_load_fails_once(small: LayerEngine) -> None:
    path = str(small.path).encode()
    with card(faults="load=3") as one:
        codes = [one.lib("axclrtEngineLoadFromFile", path, ctypes.byref(ctypes.c_uint64())) for _ in range(7)]
    assert [code == 0 for code in codes] == [True, True, False, True, True, False, True]
    assert codes[2] == 0x8030070C


def test_a_wedged_card_loads_and_does_not_execute_until_it_is_rebooted(small: LayerEngine) -> None:
    with card(faults="wedged") as one:
        assert bound_call(one, small).execute() == 0x8030070C
        one.lib.ok("axclrtRebootDevice", CARD)
        assert one.lib("axclrtSetDevice", CARD) == 0x80300184
        one.lib.ok("axclrtGetDeviceList", ctypes.byref(DeviceList()))
        one.lib.ok("axclrtSetDevice", CARD)
        one.lib.ok("axclrtEngineInit", 0)
        assert bound_call(one, small).execute() == 0


def test_load_from_device_memory_and_usage(small: LayerEngine) -> None:
    data = small.path.read_bytes()
    with card() as one:
        address = one.put(data)
        loaded = Loaded(one, one.lib.handle("axclrtEngineLoadFromMem", address, len(data)))
        one.lib.ok("axclrtFree", address)
        inputs = decode_inputs(small)
        assert (loaded.run(0, inputs)["output"] == small.expected(inputs)["output"].ravel()).all()
        sys, cmm = ctypes.c_int64(), ctypes.c_int64()
        one.lib.ok("axclrtEngineGetUsage", str(small.path).encode(), ctypes.byref(sys), ctypes.byref(cmm))
        assert cmm.value == len(data)
        used = one.report()["memory"]["used"]
        one.lib.ok("axclrtEngineUnload", loaded.model)
        assert used - one.report()["memory"]["used"] == len(data)


def test_threads_and_streams_at_once_give_the_same_bits(small: LayerEngine) -> None:
    cases = [layer_inputs(small, 1, small.rows, filled, seed=filled) for filled in (0, 10, 60)]
    expected = [small.expected(inputs)["output"].ravel() for inputs in cases]
    wrong: list[str] = []

    def work(one: Card, loaded: Loaded, seed: int) -> None:
        one.lib.ok("axclrtSetDevice", CARD)
        stream = one.lib.handle("axclrtCreateStream")
        for turn in range(6):
            case = (seed + turn) % len(cases)
            io = loaded.io()
            at = loaded.bind(io, 0, {name: array.tobytes() for name, array in cases[case].items()})
            one.lib.ok("axclrtEngineExecuteAsync", loaded.model, loaded.context, 0, io, stream)
            one.lib.ok("axclrtSynchronizeStream", stream)
            found = np.frombuffer(one.get(at["output"], expected[case].nbytes), np.uint16)
            if (found != expected[case]).any():
                wrong.append(f"thread {seed}, turn {turn}")
        one.lib.ok("axclrtDestroyStream", stream)

    with card(threads=2) as one:
        loaded = one.load(small.path)
        workers = [threading.Thread(target=work, args=(one, loaded, seed)) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert wrong == []
        assert one.report()["memory"]["allocations"] >= 4 * 6 * 8
