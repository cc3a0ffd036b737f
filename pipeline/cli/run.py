"""`engineset run SET PROMPT`: streams text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pipeline.cli.output import as_json, print_json
from pipeline.cli.types import FiniteRange
from pipeline.engineset.manifest import Manifest, read_manifest
from pipeline.engineset.verify import check_file
from pipeline.errors import RunnerError
from pipeline.native import Runner
from pipeline.tokenizer.chat import render_chat
from pipeline.tokenizer.store import load_tokenizer
from pipeline.tokenizer.tokenizer import Tokenizer


@click.command()
@click.argument("directory", metavar="SET", type=click.Path(path_type=Path))
@click.argument("prompt", required=False)
@click.option("--tokens", help="Token ids with commas instead of a prompt.")
@click.option("--chat", is_flag=True, help="Apply the model's chat template to the prompt.")
@click.option("--system", help="System message, with --chat.")
@click.option("-n", "--max-tokens", type=click.IntRange(1, 2**31 - 1), default=64, show_default=True)
@click.option("--temperature", type=FiniteRange(0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="0 keeps all.")
@click.option("--top-p", type=FiniteRange(0, 1, min_open=True), default=1.0, show_default=True)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True)
@click.option("--no-prefill", is_flag=True, help="Feed the prompt token by token.")
@click.option("--ignore-eos", is_flag=True, help="Go on after an end of sequence.")
@click.option("--lib", type=click.Path(path_type=Path), help="Runtime library; the simulator when not given.")
@as_json
def run(
    directory: Path,
    prompt: str | None,
    tokens: str | None,
    chat: bool,
    system: str | None,
    max_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    no_prefill: bool,
    ignore_eos: bool,
    lib: Path | None,
    as_json: bool,
) -> None:
    """Continue PROMPT with the engines of a set."""
    manifest = read_manifest(directory)
    _check_kept(directory, manifest)
    tokenizer = load_tokenizer(directory) if manifest.tokenizer else None
    if chat and tokens is not None:
        raise click.UsageError("--chat goes with PROMPT")
    if system is not None and not chat:
        raise click.UsageError("--system goes with --chat")
    ids = _prompt_ids(directory, tokenizer, prompt, tokens, chat, system)
    _check_prompt(directory, manifest, ids)
    with Runner(directory, lib) as runner:
        generation = runner.generate(
            ids,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            prefill=not no_prefill,
            ignore_eos=ignore_eos,
        )
        answer: list[int] = []
        text = _stream(generation, tokenizer, answer, silent=as_json)
        result = generation.finish()
    if as_json:
        print_json({"prompt": ids, "tokens": answer, "text": text, **asdict(result)})


def _prompt_ids(
    directory: Path, tokenizer: Tokenizer | None, prompt: str | None, tokens: str | None, chat: bool, system: str | None
) -> list[int]:
    if (prompt is None) == (tokens is None):
        raise click.UsageError("give PROMPT or --tokens")
    if tokens is not None:
        try:
            return [int(token) for token in tokens.split(",")]
        except ValueError:
            raise click.BadParameter("token ids with commas", param_hint="--tokens") from None
    if tokenizer is None:
        raise RunnerError("the set carries no tokenizer, give --tokens", file=directory)
    if not chat:
        bos = tokenizer.vocabulary.bos_id
        return tokenizer.encode(str(prompt), parse_special=True) or ([] if bos is None else [bos])
    messages = [{"role": "system", "content": system}] if system else []
    return tokenizer.encode_chat(render_chat(tokenizer, [*messages, {"role": "user", "content": prompt}]))


def _check_kept(directory: Path, manifest: Manifest) -> None:
    """The rows of a trimmed head mean the tokens that they were written for; engines are hashed by `verify` alone."""
    name = manifest.source.vocab_keep
    if name and name in manifest.files:
        check_file(directory / name, manifest.files[name])


def _check_prompt(directory: Path, manifest: Manifest, ids: list[int]) -> None:
    """Refuse before anything is loaded what the runner would refuse after."""
    vocab, rows = manifest.model.vocab_size, int(manifest.template.options["kv_cache_len"])
    wrong = next((token for token in ids if not 0 <= token < vocab), None)
    if not ids:
        raise RunnerError("the prompt is empty", file=directory)
    if wrong is not None:
        raise RunnerError("token id outside the vocabulary", file=directory, expected=f"0 to {vocab - 1}", found=wrong)
    if len(ids) > rows:
        raise RunnerError(
            "the prompt is longer than the cache", file=directory, expected=f"at most {rows}", found=len(ids)
        )


def _stream(generation: Any, tokenizer: Tokenizer | None, answer: list[int], silent: bool) -> str:
    """Print tokens as they come; the whole text."""
    stream = None if tokenizer is None else tokenizer.stream()
    parts: list[str] = []
    for token in generation:
        answer.append(token)
        parts.append(f"{token} " if stream is None else stream.feed(token))
        _echo(parts[-1:], silent)
    if stream is not None:
        parts.append(stream.close())
        _echo(parts[-1:], silent)
    _echo(["\n"], silent)
    return "".join(parts)


def _echo(parts: Sequence[str], silent: bool) -> None:
    if not silent:
        click.echo("".join(parts), nl=False)
