"""The tokenizer of a GGUF: ids equal to llama.cpp's, from the file's metadata alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.tokenizer import fields
from pipeline.tokenizer.bpe import BytePairs, byte_pairs
from pipeline.tokenizer.errors import TokenizerError
from pipeline.tokenizer.pretokenizers import pre_tokenizer
from pipeline.tokenizer.special import SpecialTokens
from pipeline.tokenizer.spm import SentencePieces, byte_of
from pipeline.tokenizer.stream import Stream
from pipeline.tokenizer.vocabulary import PREFIX, Kind, Vocabulary, vocabulary_from_gguf

CHAT_TEMPLATE = "tokenizer.chat_template"


class Tokenizer:
    """Text to token ids and back.

    Attributes
    ----------
    vocabulary : tokens, kinds and special ids
    chat_template : the GGUF's template, or None
    file : where the metadata was read, for messages
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: BytePairs | SentencePieces,
        metadata: Mapping[str, Any],
        file: Path | None = None,
    ) -> None:
        self.vocabulary, self.model, self.metadata, self.file = vocabulary, model, metadata, file
        self.chat_template = fields.scalar(metadata, CHAT_TEMPLATE, str)
        self._special = SpecialTokens(vocabulary)

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.tokens)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a generation: EOS, EOT and what else llama.cpp takes for an end, such as `<|im_end|>`."""
        return self.vocabulary.end_ids

    def token(self, i: int | None) -> str:
        """The text of a special token as a chat template wants it; empty for None."""
        return "" if i is None else self.vocabulary.tokens[i]

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        Parameters
        ----------
        text : any text, without lone surrogates
        add_special : put BOS before and EOS behind, if the GGUF asks for them
        parse_special : take the spelling of a control token, such as `<|im_end|>`, for the token itself

        Raises
        ------
        TokenizerError : the text cannot be written as UTF-8.
        """
        vocabulary = self.vocabulary
        ids = [vocabulary.bos_id] if add_special and vocabulary.add_bos and vocabulary.bos_id is not None else []
        after_special = True
        for fragment in self._special.split(_checked(text), parse_special):
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids += self.model.encode(fragment, after_special)
            after_special = isinstance(fragment, int)
        if add_special and vocabulary.add_eos and vocabulary.eos_id is not None:
            ids.append(vocabulary.eos_id)
        return ids

    def decode(self, ids: Iterable[int], special: bool = True) -> str:
        """The text of a whole sequence; control tokens are spelled out only with `special`.

        The space that a SentencePiece model puts before a text is taken away again.
        """
        pieces = [self.piece(i, special) for i in ids]
        if pieces and self.vocabulary.add_space_prefix:
            pieces[0] = pieces[0].removeprefix(b" ")
        return b"".join(pieces).decode("utf-8", "replace")

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes of one token. Raises TokenizerError for an id outside the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise TokenizerError("token id outside the vocabulary", expected=f"0 to {self.vocab_size - 1}", found=token)
        text, kind = self.vocabulary.tokens[token], self.vocabulary.kinds[token]
        if kind in (Kind.CONTROL, Kind.UNKNOWN):
            return text.encode() if special else b""
        if kind == Kind.USER_DEFINED:
            return text.encode()
        if kind == Kind.BYTE:
            return byte_of(text)
        return self.model.piece(text) if kind == Kind.NORMAL else b""

    def stream(self, special: bool = False) -> Stream:
        """A decoder for tokens that arrive one by one."""
        return Stream(self, special)

    def encode_chat(self, rendered: str) -> list[int]:
        """Token ids of a rendered chat: special tokens are parsed, BOS is added unless the template wrote it."""
        ids = self.encode(rendered, add_special=False, parse_special=True)
        bos = self.vocabulary.bos_id
        return [bos, *ids] if self.vocabulary.add_bos and bos is not None and ids[:1] != [bos] else ids


def _checked(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise TokenizerError(f"text holds a lone surrogate U+{code:04X} at character {error.start}") from None
    return text


def tokenizer_from_gguf(metadata: Mapping[str, Any], file: Path | None = None) -> Tokenizer:
    """Build the tokenizer that a GGUF describes.

    Parameters
    ----------
    metadata : key to value; arrays may be lists, NumPy arrays or any other iterable
    file : where the metadata was read, for messages

    Raises
    ------
    TokenizerError : the model or the pre-tokenizer is unknown, or the vocabulary is not what it must be.
    """
    try:
        return Tokenizer(*_vocabulary_and_model(metadata), metadata, file)
    except TokenizerError as error:
        error.file = error.file or file
        raise


def _vocabulary_and_model(metadata: Mapping[str, Any]) -> tuple[Vocabulary, BytePairs | SentencePieces]:
    model = fields.required(metadata, PREFIX + "model", str)
    if model == "llama":
        vocabulary = vocabulary_from_gguf(metadata, add_bos=True)
        return vocabulary, SentencePieces(vocabulary)
    if model == "gpt2":
        pre = pre_tokenizer(fields.scalar(metadata, PREFIX + "pre", str) or "default")
        vocabulary = vocabulary_from_gguf(metadata, pre.add_bos)
        return vocabulary, byte_pairs(vocabulary, metadata, pre)
    raise TokenizerError("unknown tokenizer model", where=PREFIX + "model", expected="gpt2 or llama", found=model)
