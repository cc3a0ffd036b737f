"""What a set is evaluated on, as token ids: a text in windows, prompts to continue, questions with known answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Protocol

from pipeline.checkpoint.gguf_file import GgufFile
from pipeline.errors import ConfigError, MismatchError, MissingFileError
from pipeline.evaluate.agreement import GREEDY_TOKENS, PROMPTS
from pipeline.evaluate.known_answers import KNOWN_ANSWERS, KnownAnswer

TEXT = "text.txt"
POSITIONS, LOGITS = 1024, 3 << 26
MODEL_KEY, TOKENS_KEY = "tokenizer.ggml.model", "tokenizer.ggml.tokens"


class Tokenizes(Protocol):
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]: ...


@dataclass(frozen=True)
class Material:
    """Token ids for one vocabulary.

    windows : parts of the text, each scored from an empty cache
    targets : the token that follows each position of all windows, in order
    prompts : continued greedily by `greedy_tokens`
    questions : known answers and the ids of their prompts
    """

    windows: tuple[tuple[int, ...], ...]
    targets: tuple[int, ...]
    prompts: tuple[tuple[int, ...], ...]
    questions: tuple[tuple[KnownAnswer, tuple[int, ...]], ...]
    greedy_tokens: int = GREEDY_TOKENS

    def within(self, kept: Sequence[int]) -> tuple[int, ...]:
        """The targets as columns of logits that are those of the tokens `kept` alone; -1 for another token."""
        columns = {token: column for column, token in enumerate(kept)}
        return tuple(columns.get(token, -1) for token in self.targets) if kept else self.targets

    @property
    def positions(self) -> int:
        return len(self.targets)


def default_positions(vocab: int) -> int:
    """1,024 positions, fewer where all their logits would be more than 3 * 2^26: 768 for a vocabulary of 262,144."""
    return min(POSITIONS, max(1, LOGITS // vocab))


def require_vocabulary(gguf: Path) -> None:
    """Refuse a GGUF that cannot make tokens of a text: llama.cpp ends the whole process when it is asked to.

    Raises
    ------
    MismatchError : no vocabulary
    MissingFileError, CheckpointError : no sound GGUF
    """
    metadata = GgufFile(gguf).metadata
    model = metadata.get(MODEL_KEY, "none")
    if model in ("none", "no_vocab") or TOKENS_KEY not in metadata:
        raise MismatchError(
            "the source has no vocabulary to evaluate a text with", file=gguf, where=MODEL_KEY, found=model
        )


def english_material(model: Tokenizes, text: Path | None, positions: int, window: int) -> Material:
    """The default prompts and questions, and the first `positions` tokens of a text.

    Parameters
    ----------
    text : a UTF-8 file; None is the one of this package
    window : the most tokens that the set's caches hold

    Raises
    ------
    MissingFileError : no such text
    ConfigError : the text is not UTF-8 or too short; a number that is not positive
    """
    tokens = model.tokenize(read_text(text))
    windows, targets = cut(tokens, positions, window, text)
    return Material(
        windows=windows,
        targets=targets,
        prompts=tuple(tuple(model.tokenize(prompt)) for prompt in PROMPTS),
        questions=tuple((case, tuple(model.tokenize(case.prompt))) for case in KNOWN_ANSWERS),
    )


def cut(
    tokens: Sequence[int], positions: int, window: int, text: Path | None = None
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Windows of `window` tokens over the first `positions`, and the token after each position."""
    if positions < 1 or window < 1:
        raise ConfigError("positions and window", expected="at least 1", found=f"{positions} and {window}")
    if len(tokens) <= positions:
        raise ConfigError("the text has too few tokens", file=text, expected=positions + 1, found=len(tokens))
    starts = range(0, positions, window)
    windows = tuple(tuple(tokens[i : min(i + window, positions)]) for i in starts)
    return windows, tuple(tokens[1 : positions + 1])


def read_text(path: Path | None) -> str:
    """A UTF-8 text; None is the public-domain one of this package (tests/data/README.md says which)."""
    if path is None:
        return resources.files("pipeline.evaluate").joinpath(TEXT).read_text("utf-8")
    if not path.is_file():
        raise MissingFileError("no such text", file=path)
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", file=path, offset=error.start) from None
