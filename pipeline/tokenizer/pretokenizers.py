"""The pre-tokenizers of byte-level BPE vocabularies, as data: one row each.

`tokenizer.ggml.pre` names a row. A row's patterns are applied one after the other, each to the pieces that the one
before left (matches and the gaps between them are pieces). The patterns are those that llama.cpp uses, in the syntax of
Oniguruma.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.tokenizer.errors import TokenizerError

# Code points that Unicode 16.0 assigned. llama.cpp's character tables are those of 15.1 and do not know them, the
# library's are newer and do: without these the two differ. Measured on planes 0, 1 and more.
_NEW_IN_16 = (
    "897 1b4e-1b4f 1b7f 1c89-1c8a 2427-2429 31e4-31e5 a7cb-a7cd a7da-a7dc 105c0-105f3 10d40-10d65 10d69-10d85 "
    "10d8e-10d8f 10ec2-10ec4 10efc 11380-11389 1138b 1138e 11390-113b5 113b7-113c0 113c2 113c5 113c7-113ca "
    "113cc-113d5 113d7-113d8 113e1-113e2 116d0-116e3 11bc0-11be1 11bf0-11bf9 11f5a 13460-143fa 16100-16139 "
    "16d40-16d79 18cff 1cc00-1ccf9 1cd00-1ceb3 1e5d0-1e5fa 1e5ff 1f8b2-1f8bb 1f8c0-1f8c1 1fa89 1fa8f 1fabe 1fac6 "
    "1fadc 1fadf 1fae9 1fbcb-1fbef"
)
_OLDER = "[^" + re.sub(r"[0-9a-f]+", r"\\x{\g<0>}", _NEW_IN_16).replace(" ", "") + "]"


@dataclass(frozen=True)
class PreTokenizer:
    """One row.

    patterns : regular expressions, applied in order
    ignore_merges : a piece that is itself a token is taken whole
    add_bos : the default when the GGUF has no `tokenizer.ggml.add_bos_token`
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def dated_patterns(self) -> list[str]:
        """The patterns, every `\\p{..}` limited to the characters that llama.cpp knows."""
        return [re.sub(r"\\p\{\w+\}", lambda match: f"[{match[0]}&&{_OLDER}]", pattern) for pattern in self.patterns]


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"


def _words(digits: str) -> str:
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}|{_SYMBOLS}|{_SPACES}"


def _cased_words(digits: str, suffix: str) -> str:
    """Words are split where lower case is followed by upper case."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    cased = rf"{lead}{_UPPER}*{_LOWER}+{suffix}|{lead}{_UPPER}+{_LOWER}*{suffix}"
    return rf"{cased}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_TABLE = (
    PreTokenizer(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        (_words(r"\p{N}{1,3}"),),
        ignore_merges=True,
        add_bos=True,
    ),
    PreTokenizer(("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), (_words(r"\p{N}{1,3}"),)),
    PreTokenizer(
        ("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        (_words(r"\p{N}"),),
    ),
    PreTokenizer(
        ("qwen35",),
        (
            rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        ),
    ),
    PreTokenizer(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
        (r"\p{N}", _GPT2),
    ),
    PreTokenizer(
        (
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
            "gigachat",
            "a.x-4.0",
            "mellum",
        ),
        (_GPT2,),
    ),
    PreTokenizer(("default",), (r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    PreTokenizer(("falcon",), (r"[\p{P}$+<=>^~|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    PreTokenizer(("tekken",), (_cased_words(r"\p{N}", ""),), ignore_merges=True, add_bos=True),
    PreTokenizer(("gpt-4o", "llama4", "kanana2", "minimax-m2"), (_cased_words(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),)),
    PreTokenizer(
        ("deepseek-v3", "hunyuan-dense", "joyai-llm"),
        (
            r"\p{N}{1,3}",
            r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
            rf"""| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}""",
        ),
    ),
)

PRE_TOKENIZERS = {name: row for row in _TABLE for name in row.names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The row called `name`. Raises TokenizerError for a name that no row has."""
    row = PRE_TOKENIZERS.get(name)
    if row is None:
        raise TokenizerError(
            "unknown pre-tokenizer",
            where="tokenizer.ggml.pre",
            expected=f"one of {', '.join(PRE_TOKENIZERS)}",
            found=name,
        )
    return row
