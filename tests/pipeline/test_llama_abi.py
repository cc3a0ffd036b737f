"""The structures of llama.cpp as this wheel has them: defaults where they belong, and fields that do what they say."""

from __future__ import annotations

import ctypes
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import RunnerError
from pipeline.evaluate import llama_abi
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.llama_abi import WHEEL, WHEEL_VERSION, Batch, ContextParams, ModelParams, load_library
from tests.helpers.tiny import tiny_config, write_tiny_gguf

TOKENS = [5, 17, 200, 3, 999, 42]


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("abi") / "tiny.gguf"
    write_tiny_gguf(path, tiny_config("llama"), seed=1)
    return path


class TightModel(LlamaModel):
    """A model whose contexts differ in some fields."""

    def __init__(self, path: Path, **fields: object) -> None:
        super().__init__(path, 64, 1)
        self.fields = fields

    def context_params(self, sequences: int, cells: int) -> ContextParams:
        params = super().context_params(sequences, cells)
        for name, value in self.fields.items():
            setattr(params, name, value)
        return params


def values(structure: ctypes.Structure) -> dict[str, object]:
    return {name: getattr(structure, name) for name, *_ in structure._fields_}


def filled(function: str, structure: type[ctypes.Structure], filler: int) -> bytes:
    """What a function that returns a structure leaves of a buffer larger than it, filled with one byte."""
    library = ctypes.CDLL(str(llama_abi._library_path()))
    size = ctypes.sizeof(structure) + 64
    buffer = (ctypes.c_ubyte * size)(*([filler] * size))
    call = library[function]
    call.restype = ctypes.c_void_p
    call(ctypes.byref(buffer))
    return bytes(buffer)


def test_version_pinned_here_is_the_installed_one() -> None:
    assert metadata.version(WHEEL) == WHEEL_VERSION


@pytest.mark.parametrize(
    ("function", "structure", "size"),
    [("llama_model_default_params", ModelParams, 80), ("llama_context_default_params", ContextParams, 168)],
)
def test_structure_ends_where_the_library_stops_writing(
    function: str, structure: type[ctypes.Structure], size: int
) -> None:
    assert ctypes.sizeof(structure) == size
    first, second = filled(function, structure, 0xEE), filled(function, structure, 0x11)
    written = {i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a == b}
    fields = {
        getattr(structure, name).offset + i
        for name, *_ in structure._fields_
        for i in range(getattr(structure, name).size)
    }
    assert written == fields


def test_model_defaults_are_in_their_fields() -> None:
    found = values(load_library().llama_model_default_params())
    pointers = ("devices", "tensor_buft_overrides", "tensor_split", "progress_callback", "kv_overrides")
    assert all(found.pop(name) is None for name in (*pointers, "progress_callback_user_data"))
    assert found == {
        "n_gpu_layers": -1,
        "split_mode": 1,
        "load_mode": -1,
        "lazy_mode": 1,
        "main_gpu": 0,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
        "no_host": False,
        "no_alloc": False,
        "load_mtp": False,
    }


def test_context_defaults_are_in_their_fields() -> None:
    found = values(load_library().llama_context_default_params())
    numbers = {name: value for name, value in found.items() if value is not None}
    assert set(found) - set(numbers) == {
        "cb_eval",
        "cb_eval_user_data",
        "abort_callback",
        "abort_callback_data",
        "samplers",
        "ctx_other",
    }
    assert numbers == {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "n_rs_seq": 0,
        "n_outputs_max": 0,
        "n_outputs_max_per_seq": 1,
        "n_threads": 4,
        "n_threads_batch": 4,
        "ctx_type": 0,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "flash_attn_type": -1,
        "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0,
        "yarn_ext_factor": -1.0,
        "yarn_attn_factor": -1.0,
        "yarn_beta_fast": -1.0,
        "yarn_beta_slow": -1.0,
        "yarn_orig_ctx": 0,
        "defrag_thold": -1.0,
        "type_k": 1,
        "type_v": 1,
        "moe_cache_size": 0,
        "embeddings": False,
        "offload_kqv": True,
        "no_perf": True,
        "op_offload": True,
        "swa_full": True,
        "kv_unified": False,
        "n_samplers": 0,
    }


def test_batch_has_its_arrays_and_count() -> None:
    library = load_library()
    assert ctypes.sizeof(Batch) == 56
    library.llama_batch_get_one.restype = Batch
    library.llama_batch_get_one.argtypes = [ctypes.POINTER(ctypes.c_int32), ctypes.c_int32]
    tokens = (ctypes.c_int32 * 3)(7, 8, 9)
    one = library.llama_batch_get_one(tokens, 3)
    assert one.n_tokens == 3
    assert one.token[:3] == [7, 8, 9]
    assert not any((one.embd, one.pos, one.n_seq_id, one.seq_id, one.logits))


def test_context_takes_the_numbers_it_is_given(gguf_path: Path) -> None:
    wanted = {"n_ctx": 512, "n_batch": 96, "n_ubatch": 80, "n_seq_max": 2, "n_threads": 3, "n_threads_batch": 5}
    with TightModel(gguf_path, **wanted) as model, model._context(1, 64) as context:
        assert {name: getattr(load_library(), f"llama_{name}")(context) for name in wanted} == wanted


@pytest.mark.parametrize(
    "fields",
    [{"rope_freq_base": 500.0}, {"rope_freq_scale": 0.25}, {"attention_type": 1}, {"type_k": 1, "type_v": 1}],
    ids=lambda fields: next(iter(fields)),
)
def test_field_changes_the_logits(gguf_path: Path, fields: dict[str, object]) -> None:
    with TightModel(gguf_path) as plain, TightModel(gguf_path, **fields) as changed:
        assert not np.array_equal(plain.logits(TOKENS), changed.logits(TOKENS))


@pytest.mark.parametrize(
    ("field", "data_field"), [("abort_callback", "abort_callback_data"), ("cb_eval", "cb_eval_user_data")]
)
def test_callback_is_called_with_its_data(gguf_path: Path, field: str, data_field: str) -> None:
    seen = []
    if field == "abort_callback":
        callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda data: seen.append(data) or False)
    else:
        kind = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
        callback = kind(lambda tensor, asking, data: seen.append(data) or not asking)
    fields = {field: ctypes.cast(callback, ctypes.c_void_p), data_field: 0x1234}
    with TightModel(gguf_path, **fields) as model:
        model.logits(TOKENS)
    assert set(seen) == {0x1234}


def test_moe_cache_is_refused_without_a_gpu(gguf_path: Path) -> None:
    with TightModel(gguf_path, moe_cache_size=1) as model, pytest.raises(RunnerError, match="MoE cache requires a GPU"):
        model.logits(TOKENS)


def test_vocab_only_loads_no_layers(gguf_path: Path) -> None:
    library = load_library()
    library.llama_model_n_layer.argtypes = [ctypes.c_void_p]
    layers = []
    for vocab_only in (True, False):
        params = library.llama_model_default_params()
        params.vocab_only = vocab_only
        model = library.llama_model_load_from_file(str(gguf_path).encode(), params)
        layers.append(library.llama_model_n_layer(model))
        library.llama_model_free(model)
    assert layers == [0, 2]


def test_another_version_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_abi.metadata, "version", lambda name: "2020.1.1")
    with pytest.raises(RunnerError, match=f"expected {WHEEL_VERSION}, found 2020.1.1"):
        llama_abi._library_path()


def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_abi, "WHEEL", "no-such-wheel-here")
    with pytest.raises(RunnerError, match=r"pip install 'engineset\[evaluate\]'"):
        llama_abi._library_path()
