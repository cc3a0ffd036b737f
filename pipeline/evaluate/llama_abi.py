"""The C structures and functions of llama.cpp that evaluation calls, for one exact build.

The wheel `xllamacpp` exports the llama C API from its extension module and ships no header. Field order follows the
public `llama.h`; offsets were read off the machine code of `llama_model_default_params`,
`llama_context_default_params` and `llama_batch_get_one` of this build. Structures are passed by value, so one field
too many corrupts the call: another version is refused, and tests/pipeline/test_llama_abi.py checks every field it can.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_bool, c_char_p, c_float, c_int8, c_int32, c_size_t, c_uint32, c_void_p
from importlib import metadata, util
from pathlib import Path

from pipeline.errors import RunnerError

WHEEL = "xllamacpp"
WHEEL_VERSION = "2026.10.11549"

GGML_TYPE_F32 = 0
FLASH_ATTENTION_OFF = 0
LOG_LEVEL_ERROR = 4

LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, c_char_p, c_void_p)


class ModelParams(ctypes.Structure):
    """`llama_model_params`, 80 bytes."""

    _fields_ = (
        ("devices", c_void_p),
        ("tensor_buft_overrides", c_void_p),
        ("n_gpu_layers", c_int32),
        ("split_mode", c_int32),
        ("load_mode", c_int32),
        ("lazy_mode", c_int32),
        ("main_gpu", c_int32),
        ("tensor_split", c_void_p),
        ("progress_callback", c_void_p),
        ("progress_callback_user_data", c_void_p),
        ("kv_overrides", c_void_p),
        ("vocab_only", c_bool),
        ("check_tensors", c_bool),
        ("use_extra_bufts", c_bool),
        ("no_host", c_bool),
        ("no_alloc", c_bool),
        ("load_mtp", c_bool),
    )


class ContextParams(ctypes.Structure):
    """`llama_context_params`, 168 bytes."""

    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("ctx_type", c_int32),
        ("rope_scaling_type", c_int32),
        ("pooling_type", c_int32),
        ("attention_type", c_int32),
        ("flash_attn_type", c_int32),
        ("rope_freq_base", c_float),
        ("rope_freq_scale", c_float),
        ("yarn_ext_factor", c_float),
        ("yarn_attn_factor", c_float),
        ("yarn_beta_fast", c_float),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        ("cb_eval", c_void_p),
        ("cb_eval_user_data", c_void_p),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("moe_cache_size", c_size_t),
        ("abort_callback", c_void_p),
        ("abort_callback_data", c_void_p),
        ("embeddings", c_bool),
        ("offload_kqv", c_bool),
        ("no_perf", c_bool),
        ("op_offload", c_bool),
        ("swa_full", c_bool),
        ("kv_unified", c_bool),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class Batch(ctypes.Structure):
    """`llama_batch`, 56 bytes. `logits` marks the tokens whose logits are kept."""

    _fields_ = (
        ("n_tokens", c_int32),
        ("token", ctypes.POINTER(c_int32)),
        ("embd", ctypes.POINTER(c_float)),
        ("pos", ctypes.POINTER(c_int32)),
        ("n_seq_id", ctypes.POINTER(c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(c_int32))),
        ("logits", ctypes.POINTER(c_int8)),
    )


_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (LogCallback, c_void_p)),
    "llama_model_default_params": (ModelParams, ()),
    "llama_context_default_params": (ContextParams, ()),
    "llama_model_load_from_file": (c_void_p, (c_char_p, ModelParams)),
    "llama_model_free": (None, (c_void_p,)),
    "llama_model_get_vocab": (c_void_p, (c_void_p,)),
    "llama_init_from_model": (c_void_p, (c_void_p, ContextParams)),
    "llama_free": (None, (c_void_p,)),
    "llama_n_ctx": (c_uint32, (c_void_p,)),
    "llama_n_batch": (c_uint32, (c_void_p,)),
    "llama_n_ubatch": (c_uint32, (c_void_p,)),
    "llama_n_seq_max": (c_uint32, (c_void_p,)),
    "llama_n_threads": (c_int32, (c_void_p,)),
    "llama_n_threads_batch": (c_int32, (c_void_p,)),
    "llama_batch_init": (Batch, (c_int32, c_int32, c_int32)),
    "llama_batch_free": (None, (Batch,)),
    "llama_decode": (c_int32, (c_void_p, Batch)),
    "llama_get_logits": (ctypes.POINTER(c_float), (c_void_p,)),
    "llama_vocab_n_tokens": (c_int32, (c_void_p,)),
    "llama_vocab_is_eog": (c_bool, (c_void_p, c_int32)),
    "llama_tokenize": (
        c_int32,
        (c_void_p, c_char_p, c_int32, ctypes.POINTER(c_int32), c_int32, c_bool, c_bool),
    ),
    "llama_detokenize": (
        c_int32,
        (c_void_p, ctypes.POINTER(c_int32), c_int32, c_char_p, c_int32, c_bool, c_bool),
    ),
}


class Log:
    """Swallows what llama.cpp prints and keeps its last error, which names the cause of a failed call."""

    def __init__(self) -> None:
        self.last_error = ""
        self.callback = LogCallback(self._receive)

    def _receive(self, level: int, text: bytes | None, _data: object) -> None:
        if level == LOG_LEVEL_ERROR and text:
            self.last_error = text.decode("utf-8", "replace").strip()


LOG = Log()


@functools.cache
def load_library() -> ctypes.CDLL:
    """The shared library of the pinned wheel, its functions typed and its log silenced.

    Raises
    ------
    RunnerError : the wheel is not installed, has another version, or exports no llama API.
    """
    library = ctypes.CDLL(str(_library_path()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise RunnerError("does not export the llama C API", file=WHEEL, where=name)
        function.restype, function.argtypes = result, list(arguments)
    library.llama_log_set(LOG.callback, None)
    library.llama_backend_init()
    return library


def _library_path() -> Path:
    try:
        version = metadata.version(WHEEL)
    except metadata.PackageNotFoundError:
        raise RunnerError(f"{WHEEL} is not installed: pip install 'engineset[evaluate]'") from None
    if version != WHEEL_VERSION:
        raise RunnerError("another build of llama.cpp", file=WHEEL, expected=WHEEL_VERSION, found=version)
    spec = util.find_spec(WHEEL)
    folder = Path(spec.origin).parent if spec and spec.origin else Path(WHEEL)
    for path in sorted(folder.glob(f"{WHEEL}*.so")):
        return path
    raise RunnerError("the wheel holds no shared library", file=folder, where=f"{WHEEL}*.so")
