"""SentencePiece BPE (`tokenizer.ggml.model` = llama): merges by score, bytes for what no token spells.

Own code, because the `tokenizers` library ranks pairs and cannot give two pairs one rank: where several pairs spell the
same token, SentencePiece and llama.cpp take the leftmost.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, normalizers

from pipeline.tokenizer.bpe import add_special
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.vocabulary import PREFIX, Kind, Vocabulary

SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class SentencePieces:
    """Encodes text between special tokens, and spells tokens in bytes.

    Raises
    ------
    TokenizerError : the GGUF has no scores, or the vocabulary lacks a byte.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        if not vocabulary.scores:
            raise TokenizerError("not in the GGUF's metadata", where=PREFIX + "scores")
        self.vocabulary = vocabulary
        self._ids = {token: i for i, token in enumerate(vocabulary.tokens)}
        self._bytes = [self._byte_id(byte) for byte in range(256)]

    def _byte_id(self, byte: int) -> int:
        for text in (f"<0x{byte:02X}>", chr(byte) if byte < 0x80 else ""):
            if text in self._ids:
                return self._ids[text]
        raise TokenizerError(f"the vocabulary has no token for byte 0x{byte:02X}", where=PREFIX + "tokens")

    def encode(self, text: str, follows_special: bool) -> list[int]:
        """Token ids of `text`; at the beginning and after a special token a space is put before it, if asked for."""
        prefix = " " if self.vocabulary.add_space_prefix and follows_special else ""
        merger = _Merger((prefix + text).replace(" ", SPACE), self._ids, self.vocabulary.scores)
        return [i for symbol in merger.run() for i in self._ids_of(symbol)]

    def _ids_of(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        return [self._bytes[byte] for byte in symbol.encode()]

    def piece(self, token: str) -> bytes:
        """The bytes of a normal token."""
        return token.replace(SPACE, " ").encode()

    @property
    def library(self) -> Tokenizer:
        """The same vocabulary for other programs; it differs from ours only where pairs of equal score compete."""
        vocabulary = self.vocabulary
        library = Tokenizer(models.BPE(self._ids, self._ranked_pairs(), byte_fallback=True, fuse_unk=True))
        prefix = [normalizers.Prepend(SPACE)] if vocabulary.add_space_prefix else []
        library.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
        strip = [decoders.Strip(" ", 1, 0)] if vocabulary.add_space_prefix else []
        library.decoder = decoders.Sequence(
            [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
        )
        add_special(library, vocabulary)
        return library

    def _ranked_pairs(self) -> list[tuple[str, str]]:
        kinds, scores = self.vocabulary.kinds, self.vocabulary.scores
        pairs = []
        for token, i in self._ids.items():
            if kinds[i] == Kind.NORMAL:
                splits = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
                pairs += [(-scores[i], i, pair) for pair in splits if pair[0] in self._ids and pair[1] in self._ids]
        return [pair for _, _, pair in sorted(pairs, key=lambda entry: entry[:2])]


class _Merger:
    """One text on its way from characters to tokens: a linked list of symbols and a heap of candidate pairs."""

    def __init__(self, text: str, ids: dict[str, int], scores: list[float]) -> None:
        self._ids, self._scores = ids, scores
        self._symbols = list(text)
        self._next = list(range(1, len(text) + 1))
        self._previous = list(range(-1, len(text) - 1))
        self._heap: list[tuple[float, int, int, str]] = []

    def run(self) -> Iterator[str]:
        symbols, end = self._symbols, len(self._symbols)
        for i in range(end - 1):
            self._push(i, i + 1)
        while self._heap:
            _, left, right, merged = heapq.heappop(self._heap)
            # A symbol that was merged into its left neighbour is empty; one that grew makes the pair stale.
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != len(merged):
                continue
            symbols[left], symbols[right] = merged, ""
            after = self._next[left] = self._next[right]
            if after < end:
                self._previous[after] = left
                self._push(left, after)
            if self._previous[left] >= 0:
                self._push(self._previous[left], left)
        return (symbol for symbol in symbols if symbol)

    def _push(self, left: int, right: int) -> None:
        merged = self._symbols[left] + self._symbols[right]
        token = self._ids.get(merged)
        if token is not None:
            heapq.heappush(self._heap, (-self._scores[token], left, right, merged))


def byte_of(token: str) -> bytes:
    """The byte that a token such as `<0x0A>` stands for. Raises TokenizerError for another spelling."""
    match = _BYTE.fullmatch(token)
    if match is None:
        raise TokenizerError(f"byte token {token!r} is not spelled <0xXX>", where=PREFIX + "tokens")
    return bytes((int(match[1], 16),))
