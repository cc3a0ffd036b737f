"""Text from tokens, one at a time."""

from __future__ import annotations

import codecs
from typing import Protocol


class Speller(Protocol):
    """What can spell one token."""

    def piece(self, token: int, special: bool = True) -> bytes:
        """The token's bytes; empty for a control token when `special` is false."""
        ...


class Stream:
    """Decodes a growing sequence of tokens without ever splitting a character.

    The joined results of all calls are the text of all tokens; bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self, speller: Speller, special: bool = False) -> None:
        self._speller, self._special = speller, special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The characters that `token` completes: none, while a character's bytes are still to come."""
        return self._decoder.decode(self._speller.piece(token, self._special))

    def close(self) -> str:
        """What is left of a character that never became complete."""
        return self._decoder.decode(b"", final=True)
