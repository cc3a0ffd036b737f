"""Byte-level BPE (`tokenizer.ggml.model` = gpt2), run by the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from pipeline.tokenizer import fields
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.pretokenizers import PreTokenizer
from pipeline.tokenizer.vocabulary import PREFIX, Kind, Vocabulary

# Stands for a byte that the vocabulary lacks, so that the bytes around it do not merge. It holds a space: no text can
# spell it in the byte alphabet.
MISSING_BYTE = "<missing byte>"


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's one printable character per byte: itself where it is printable Latin-1, else U+0100 and up in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}


BYTE_OF = _byte_alphabet()
# Bytes that no UTF-8 text holds.
_NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}


class BytePairs:
    """Encodes text between special tokens, and spells tokens in bytes."""

    def __init__(self, vocabulary: Vocabulary, library: Tokenizer) -> None:
        self.vocabulary, self.library = vocabulary, library
        self._missing = library.token_to_id(MISSING_BYTE)
        self.library.encode_special_tokens = True

    def encode(self, text: str, follows_special: bool) -> list[int]:
        """Token ids of `text`; where it stands makes no difference to this model."""
        ids: list[int] = self.library.encode(text, add_special_tokens=False).ids
        if self._missing is None:
            return ids
        return [i for i in ids if i != self._missing]

    def piece(self, token: str) -> bytes:
        """The bytes of a normal token; a character outside the byte alphabet stands for itself."""
        return b"".join(bytes((BYTE_OF[c],)) if c in BYTE_OF else c.encode() for c in token)


def byte_pairs(vocabulary: Vocabulary, metadata: Mapping[str, Any], pre: PreTokenizer) -> BytePairs:
    """Build the encoder.

    Raises
    ------
    TokenizerError : the merges are missing, one names a token that the vocabulary lacks, a token has our name.
    """
    vocab = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = _merges(metadata, vocab)
    missing = any(char not in vocab for char, byte in BYTE_OF.items() if byte not in _NEVER)
    if MISSING_BYTE in vocab:
        raise TokenizerError(f"token {MISSING_BYTE!r} has a name that is ours", where=PREFIX + "tokens")
    if missing:
        vocab[MISSING_BYTE] = len(vocab)
    model = models.BPE(vocab, merges, unk_token=MISSING_BYTE if missing else None, ignore_merges=pre.ignore_merges)
    library = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.dated_patterns()]
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    library.decoder = decoders.ByteLevel()
    add_special(library, vocabulary)
    return BytePairs(vocabulary, library)


def add_special(library: Tokenizer, vocabulary: Vocabulary) -> None:
    """Tell the library which tokens are special, so that a saved `tokenizer.json` says so to other programs."""
    special = vocabulary.ids_of_kind(Kind.CONTROL, Kind.UNKNOWN)
    library.add_special_tokens([AddedToken(vocabulary.tokens[i], normalized=False, special=True) for i in special])
    shown = vocabulary.ids_of_kind(Kind.USER_DEFINED)
    library.add_tokens([AddedToken(vocabulary.tokens[i], normalized=False) for i in shown])


def _merges(metadata: Mapping[str, Any], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """Pairs in order of rank; of a pair that is listed twice the first rank counts."""
    key = PREFIX + "merges"
    lines = fields.strings(metadata, key)
    if lines is None:
        raise TokenizerError("not in the GGUF's metadata", where=key)
    merges: dict[tuple[str, str], None] = {}
    for i, line in enumerate(lines):
        # The first part may itself begin with a space.
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if cut < 0 or left not in vocab or right not in vocab or left + right not in vocab:
            raise TokenizerError(f"merge {line!r} names a token that is not in the vocabulary", where=f"{key}[{i}]")
        merges.setdefault((left, right))
    return list(merges)
