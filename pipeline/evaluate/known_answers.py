"""Twelve questions with known answers: what a set loses is read beside what the reference never knew."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownAnswer:
    """`answer` must match at the beginning of up to `tokens` greedy tokens after `prompt`, white space aside."""

    name: str
    prompt: str
    answer: str
    tokens: int = 6

    def passes(self, continuation: str) -> bool:
        return re.match(self.answer, continuation.strip()) is not None


# chosen so that SmolLM2-135M-Instruct passes all but the planet
KNOWN_ANSWERS = (
    KnownAnswer("capital", "The capital of France is", r"Paris\b"),
    KnownAnswer("city", "The capital of Italy is the city of", r"Rome\b"),
    KnownAnswer("arithmetic", "One plus one equals", r"(2|two)\b"),
    KnownAnswer("sequence", "1, 2, 3, 4, 5,", r"6, 7"),
    KnownAnswer("even numbers", "2, 4, 6, 8,", r"10\b"),
    KnownAnswer("alphabet", "A, B, C, D,", r"E, F"),
    KnownAnswer("code", "def add(a, b):\n    return", r"a \+ b"),
    KnownAnswer("import", "import numpy as", r"np\b"),
    KnownAnswer("opposite", "The opposite of hot is", r"cold\b"),
    KnownAnswer("geometry", "A triangle has three sides. A square has", r"(4|four)\b"),
    KnownAnswer("chemistry", "The chemical formula of water is", r"H2O\b"),
    KnownAnswer("planet", "The planet closest to the Sun is", r"Mercury\b"),
)
