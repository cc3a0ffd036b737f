"""What a set says of its own, and what llama.cpp says in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pipeline.evaluate.agreement import common_prefix
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.material import Material
from pipeline.evaluate.report import Answers

LONGEST_UNCHUNKED = 24  # tokens; a prefill call of the simulator computes its padding rows too


class SetRunner(Protocol):
    """What evaluation asks of `pipeline.native.Runner`."""

    def score(self, tokens: Sequence[int], *, logits: Path | None = None) -> object:
        """Writes bf16 bits `[len(tokens), rows of the head]` to `logits`."""
        ...

    def generate(
        self, tokens: Sequence[int], *, max_tokens: int = 32, ignore_eos: bool = False, prefill: bool = True
    ) -> Iterator[int]: ...


def continue_set(runner: SetRunner, prompt: Sequence[int], tokens: int, ignore_eos: bool = False) -> list[int]:
    """Greedy tokens of the set, at most `tokens`. The prompt goes in token by token where that is quicker: the bits are equal."""
    prefill = len(prompt) > LONGEST_UNCHUNKED
    return list(runner.generate(prompt, max_tokens=tokens, ignore_eos=ignore_eos, prefill=prefill))


def follow(model: LlamaModel, prompts: Sequence[Sequence[int]], owns: Sequence[Sequence[int]]) -> list[list[int]]:
    """Greedy tokens of llama.cpp after each prompt as far as they are those of `owns`, and the first that is another.

    One pass over all tokens at once: as long as they agree, what stands before a token is the same.
    """
    asked = [i for i, own in enumerate(owns) if own]
    sequences = [[*prompts[i], *owns[i][:-1]] for i in asked]
    found: list[list[int]] = [[] for _ in owns]
    for i, best in zip(asked, model.most_likely(sequences, [len(prompts[i]) for i in asked]), strict=True):
        found[i] = best[: common_prefix(best, owns[i]) + 1]
    return found


def ask(reference: LlamaModel, material: Material, answered: Sequence[Sequence[int]]) -> tuple[Answers, ...]:
    """What set and reference say to the questions. llama.cpp generates only where it says something else."""
    cases, prompts = [case for case, _ in material.questions], [ids for _, ids in material.questions]
    expected = follow(reference, prompts, answered)
    apart = [
        i
        for i, (case, own) in enumerate(zip(cases, answered, strict=True))
        if expected[i] != own or len(own) < case.tokens or any(map(reference.is_end, own))
    ]
    if apart:
        longest = max(cases[i].tokens for i in apart)
        for i, tokens in zip(apart, reference.greedy([prompts[i] for i in apart], longest), strict=True):
            expected[i] = tokens[: cases[i].tokens]
    return tuple(
        Answers.judge(case, reference.detokenize(own), reference.detokenize(theirs))
        for case, own, theirs in zip(cases, answered, expected, strict=True)
    )
