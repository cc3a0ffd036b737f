"""Cuts text at special tokens, in llama.cpp's order: the longest special token claims its occurrences first."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.tokenizer.vocabulary import Kind, Vocabulary

Fragment = str | int
_WHITE = " \t\n\v\f\r"


class SpecialTokens:
    """The special tokens of a vocabulary, ready for searching."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ids = vocabulary.ids_of_kind(Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
        ids.sort(key=lambda i: -len(vocabulary.tokens[i].encode()))
        self._all = [(vocabulary.tokens[i], i) for i in ids]
        self._user_defined = [entry for entry in self._all if vocabulary.kinds[entry[1]] == Kind.USER_DEFINED]
        self._strip_after = vocabulary.strip_after

    def split(self, text: str, parse_special: bool) -> list[Fragment]:
        """Text fragments and token ids, in order.

        Control and unknown tokens are looked for only with `parse_special`, user-defined ones always.
        """
        fragments: list[Fragment] = [text] if text else []
        for token, i in self._all if parse_special else self._user_defined:
            if token in text:
                fragments = list(self._split_at(fragments, token, i))
        return fragments

    def _split_at(self, fragments: Iterable[Fragment], token: str, i: int) -> Iterable[Fragment]:
        for fragment in fragments:
            if isinstance(fragment, int) or token not in fragment:
                yield fragment
                continue
            first, *others = fragment.split(token)
            if first:
                yield first
            for part in others:
                yield i
                rest = part.lstrip(_WHITE) if i in self._strip_after else part
                if rest:
                    yield rest
