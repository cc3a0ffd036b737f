"""llama.cpp as the reference: token ids, teacher-forced logits and greedy continuations of a GGUF, on the CPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pipeline.errors import MissingFileError, RunnerError
from pipeline.evaluate.llama_abi import FLASH_ATTENTION_OFF, GGML_TYPE_F32, LOG, Batch, ContextParams, load_library

Float32 = npt.NDArray[np.float32]

BATCH_TOKENS, BATCH_LOGITS = 512, 1 << 25


class LlamaModel:
    """One loaded GGUF. Close it, or use it as a context manager.

    The KV cache is float32 and flash attention is off, so that an F32 model is computed in float32 throughout.

    Parameters
    ----------
    path : a GGUF file
    n_ctx : the most tokens of one sequence
    threads : CPU threads; all of them by default

    Raises
    ------
    MissingFileError : no such file
    RunnerError : llama.cpp is not installed, is another build, or cannot load the file
    """

    def __init__(self, path: str | Path, n_ctx: int = 2048, threads: int | None = None) -> None:
        self.path, self.n_ctx = Path(path), n_ctx
        self.threads = threads or os.cpu_count() or 1
        if not self.path.is_file():
            raise MissingFileError("no such GGUF", file=self.path)
        self._lib = load_library()
        LOG.last_error = ""
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = self._lib.llama_model_load_from_file(str(self.path).encode(), params)
        if not self._model:
            raise RunnerError(f"llama.cpp cannot load this model: {LOG.last_error}", file=self.path)
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.vocab_size = int(self._lib.llama_vocab_n_tokens(self._vocab))
        # llama.cpp holds the logits of a whole batch more than once
        self.batch_tokens = max(32, min(BATCH_TOKENS, BATCH_LOGITS // self.vocab_size))

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; a second call does nothing."""
        if self._model:
            self._lib.llama_model_free(self._model)
            self._model = None

    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`; `add_special` adds what the GGUF asks for, `parse_special` reads `<|...|>` as tokens."""
        data = text.encode()
        capacity = len(data) + 8
        ids = (ctypes.c_int32 * capacity)()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), ids, capacity, add_special, parse_special)
        if count < 0:
            raise RunnerError("llama.cpp cannot tokenize", file=self.path, expected=capacity, found=-count)
        return list(ids[:count])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, special tokens included; bytes that are not UTF-8 become U+FFFD."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        size = self._lib.llama_detokenize(self._vocab, ids, len(tokens), None, 0, False, True)
        text = ctypes.create_string_buffer(abs(size) + 1)
        count = self._lib.llama_detokenize(self._vocab, ids, len(tokens), text, len(text), False, True)
        return text.raw[: max(count, 0)].decode("utf-8", "replace")

    def is_end(self, token: int) -> bool:
        """Whether `token` ends a generation."""
        return bool(self._lib.llama_vocab_is_eog(self._vocab, token))

    def logits(self, tokens: Sequence[int]) -> Float32:
        """Teacher-forced logits, float32 `[len(tokens), vocab]`: row i follows tokens 0 to i."""
        self._check(tokens)
        out = np.empty((len(tokens), self.vocab_size), np.float32)
        with self._context(1, self.n_ctx) as context, self._batch(self.batch_tokens) as batch:
            for start in range(0, len(tokens), self.batch_tokens):
                part = tokens[start : start + self.batch_tokens]
                rows = [(token, start + i, 0, True) for i, token in enumerate(part)]
                out[start : start + len(part)] = self._decode(context, batch, rows)
        return out

    def most_likely(self, sequences: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[int]]:
        """For each sequence the most likely token after its first `start` tokens, `start` + 1, and so on to all of it.

        All sequences share one context and go through the model together, some at a time.
        """
        for tokens in sequences:
            self._check(tokens)
        out: list[list[int]] = [[] for _ in sequences]
        rows = [
            (token, i, s, i >= start - 1)
            for s, (tokens, start) in enumerate(zip(sequences, starts, strict=True))
            for i, token in enumerate(tokens)
        ]
        with self._context(max(len(sequences), 1), len(rows)) as context, self._batch(self.batch_tokens) as batch:
            for first in range(0, len(rows), self.batch_tokens):
                part = rows[first : first + self.batch_tokens]
                wanted = [s for _, _, s, asked in part if asked]
                for s, token in zip(wanted, self._decode(context, batch, part).argmax(axis=1).tolist(), strict=True):
                    out[s].append(token)
        return out

    def greedy(self, prompts: Sequence[Sequence[int]], n: int, ignore_end: bool = False) -> list[list[int]]:
        """Up to `n` most likely tokens after each prompt, all prompts in one batch.

        A sequence ends before its end token, unless `ignore_end`.
        """
        for prompt in prompts:
            self._check(prompt)
        out: list[list[int]] = [[] for _ in prompts]
        cells = sum(len(prompt) + n for prompt in prompts)
        with self._context(len(prompts), cells) as context, self._batch(cells) as batch:
            rows = [
                (token, i, s, i == len(prompt) - 1)
                for s, prompt in enumerate(prompts)
                for i, token in enumerate(prompt)
            ]
            while rows:
                best = self._decode(context, batch, rows).argmax(axis=1)
                active = [s for _, _, s, wanted in rows if wanted]
                rows = []
                for s, token in zip(active, best.tolist(), strict=True):
                    if not ignore_end and self.is_end(token):
                        continue
                    out[s].append(token)
                    if len(out[s]) < n:
                        rows.append((token, len(prompts[s]) + len(out[s]) - 1, s, True))
        return out

    def _check(self, tokens: Sequence[int]) -> None:
        if not 0 < len(tokens) <= self.n_ctx:
            raise RunnerError("number of tokens", file=self.path, expected=f"1 to {self.n_ctx}", found=len(tokens))
        if not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            found = f"{min(tokens)} to {max(tokens)}"
            raise RunnerError("token out of range", file=self.path, expected=f"0 to {self.vocab_size - 1}", found=found)

    def context_params(self, sequences: int, cells: int) -> ContextParams:
        """What a context of this model is made with: `cells` KV cells shared by `sequences`."""
        params: ContextParams = self._lib.llama_context_default_params()
        params.n_ctx, params.n_seq_max = max(cells, 32), sequences
        params.n_batch = params.n_ubatch = max(self.batch_tokens, cells if sequences > 1 else 0)
        params.n_threads = params.n_threads_batch = self.threads
        params.type_k = params.type_v = GGML_TYPE_F32
        params.flash_attn_type = FLASH_ATTENTION_OFF
        params.kv_unified = True
        return params

    @contextmanager
    def _context(self, sequences: int, cells: int) -> Iterator[int]:
        context = self._lib.llama_init_from_model(self._model, self.context_params(sequences, cells))
        if not context:
            raise RunnerError(f"llama.cpp cannot make a context: {LOG.last_error}", file=self.path)
        try:
            yield context
        finally:
            self._lib.llama_free(context)

    @contextmanager
    def _batch(self, tokens: int) -> Iterator[Batch]:
        batch = self._lib.llama_batch_init(tokens, 0, 1)
        try:
            yield batch
        finally:
            self._lib.llama_batch_free(batch)

    def _decode(self, context: int, batch: Batch, rows: Sequence[tuple[int, int, int, bool]]) -> Float32:
        """Logits of the wanted rows, in order; a row is (token, position, sequence, wanted)."""
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted
        batch.n_tokens = len(rows)
        code = self._lib.llama_decode(context, batch)
        if code:
            raise RunnerError(f"llama_decode failed with {code}: {LOG.last_error}", file=self.path)
        wanted_rows = sum(wanted for *_, wanted in rows)
        if not wanted_rows:
            return np.empty((0, self.vocab_size), np.float32)
        pointer = self._lib.llama_get_logits(context)
        return np.ctypeslib.as_array(pointer, shape=(wanted_rows, self.vocab_size)).copy()
