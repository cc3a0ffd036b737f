"""A vocabulary as a GGUF describes it: tokens, their kinds, the special ones and the ones that end a generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pipeline.tokenizer import fields
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.special_texts import END_TEXTS, EOT_TEXTS, FIM_ENDS, FIM_TEXTS, SHOWN_TEXTS

PREFIX = "tokenizer.ggml."


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`, as the GGUF specification numbers it."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPM_DEFAULTS = {"bos": 1, "eos": 2, "unknown": 0}


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, with everything that encoding and decoding need to know of them.

    model : `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE)
    kinds : one `Kind` per token, after the overrides by text that llama.cpp makes
    scores : one per token; empty when the GGUF has none
    end_ids : tokens that end a generation
    strip_after : special tokens that swallow the white space after them
    """

    model: str
    tokens: list[str]
    kinds: list[int]
    scores: list[float]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    end_ids: frozenset[int]
    strip_after: frozenset[int]

    def ids_of_kind(self, *kinds: Kind) -> list[int]:
        return [i for i, kind in enumerate(self.kinds) if kind in kinds]


def vocabulary_from_gguf(metadata: Mapping[str, Any], add_bos: bool) -> Vocabulary:
    """Read and check a vocabulary.

    Parameters
    ----------
    metadata : key to value, as in the GGUF
    add_bos : the default for a GGUF that does not say whether a prompt begins with BOS

    Raises
    ------
    TokenizerError : a key is missing or of another type, an array is too short, a token occurs twice, BOS or EOS is
        to be added and has no id.
    """
    model = fields.required(metadata, PREFIX + "model", str)
    tokens = _tokens(metadata)
    kinds = [int(kind) for kind in fields.numbers(metadata, PREFIX + "token_type", len(tokens)) or [1] * len(tokens)]
    named = _named_ids(metadata, model, len(tokens))
    end_ids = _override_kinds(tokens, kinds, named)
    spaces = fields.scalar(metadata, PREFIX + "add_space_prefix", bool)
    return Vocabulary(
        model=model,
        tokens=tokens,
        kinds=kinds,
        scores=[float(score) for score in fields.numbers(metadata, PREFIX + "scores", len(tokens)) or []],
        bos_id=named.get("bos"),
        eos_id=named.get("eos"),
        eot_id=named.get("eot"),
        add_bos=_adds(metadata, "bos", add_bos, named),
        add_eos=_adds(metadata, "eos", False, named),
        add_space_prefix=model == "llama" if spaces is None else spaces,
        end_ids=end_ids,
        strip_after=_strip_after(metadata, tokens, kinds),
    )


def _tokens(metadata: Mapping[str, Any]) -> list[str]:
    key = PREFIX + "tokens"
    tokens = fields.strings(metadata, key)
    if not tokens:
        raise TokenizerError("not in the GGUF's metadata, or empty", where=key)
    tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
    if len(set(tokens)) != len(tokens):
        first: dict[str, int] = {}
        for i, token in enumerate(tokens):
            if first.setdefault(token, i) != i:
                raise TokenizerError(f"token {token!r} is also token {first[token]}", where=f"{key}[{i}]")
    return tokens


def _named_ids(metadata: Mapping[str, Any], model: str, count: int) -> dict[str, int]:
    named = {name: i for name, i in _SPM_DEFAULTS.items() if model == "llama" and i < count}
    for name in ("bos", "eos", "eot", "eom", "unknown", *FIM_TEXTS):
        value = fields.scalar(metadata, f"{PREFIX}{name}_token_id", int)
        if value is not None and 0 <= value < count:
            named[name] = value
    return named


def _adds(metadata: Mapping[str, Any], name: str, default: bool, named: Mapping[str, int]) -> bool:
    key = f"{PREFIX}add_{name}_token"
    value = fields.scalar(metadata, key, bool)
    adds = default if value is None else value
    if adds and name not in named:
        raise TokenizerError(f"{name.upper()} is to be added and has no valid id", where=f"{PREFIX}{name}_token_id")
    return adds


def _override_kinds(tokens: list[str], kinds: list[int], named: dict[str, int]) -> frozenset[int]:
    """Correct `kinds` and complete `named` by the tokens' texts, in place; returns the ids that end a generation."""
    ids = {token: i for i, token in enumerate(tokens)}
    ends = _present(ids, END_TEXTS)
    for name, texts in (("eom", ("<|eom_id|>",)), ("eot", EOT_TEXTS), *FIM_TEXTS.items()):
        found = _present(ids, texts)
        if name not in named and found:
            named[name] = found[0]
            kinds[found[0]] = Kind.CONTROL
    for i in ends:
        kinds[i] = Kind.CONTROL
    for i in _present(ids, SHOWN_TEXTS):
        kinds[i] = Kind.USER_DEFINED
    end_ids = set(ends) | {named[name] for name in ("eos", "eot", "eom", *FIM_ENDS) if name in named}
    return frozenset(end_ids - _false_ends(ids, end_ids, kinds))


def _present(ids: Mapping[str, int], texts: Iterable[str]) -> list[int]:
    return [ids[text] for text in texts if text in ids]


def _false_ends(ids: Mapping[str, int], end_ids: set[int], kinds: list[int]) -> set[int]:
    """End tokens that are none in the company of others: `<|end|>` of Harmony and Solar, `</s>` of Gemma 4."""
    has = {text for text, i in ids.items() if i in end_ids}
    false = set()
    harmony = "<|return|>" in has and has & {"<|call|>", "<|calls|>"}
    solar = "<|flush|>" in has and has & {"<|call|>", "<|calls|>"}
    if "<|end|>" in has and (harmony or solar):
        false.add(ids["<|end|>"])
        kinds[ids["<|end|>"]] = Kind.USER_DEFINED
    if {"<|tool_response>", "</s>"} <= has:
        false.add(ids["</s>"])
        kinds[ids["</s>"]] = Kind.NORMAL
    return false


def _strip_after(metadata: Mapping[str, Any], tokens: list[str], kinds: list[int]) -> frozenset[int]:
    """Phi-3 alone: white space after a special token is dropped. llama.cpp goes by the model's name, so do we."""
    name = (fields.scalar(metadata, "general.name", str) or "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    kept = {"<unk>", "<s>", "<|endoftext|>"}
    special = (Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
    return frozenset(i for i, kind in enumerate(kinds) if kind in special and tokens[i] not in kept)
