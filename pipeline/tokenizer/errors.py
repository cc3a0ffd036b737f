"""What can be wrong with a tokenizer or a chat template that came with a model."""

from __future__ import annotations

from pipeline.errors import EngineSetError


class TokenizerError(EngineSetError):
    """Tokenizer metadata that is missing, contradicts itself or is of an unknown kind."""


class ChatTemplateError(EngineSetError):
    """A chat template that is missing, does not compile, fails, or does what it must not."""
