"""A vendor's tokenizer file goes into a set as it is, so its numbers must be the source's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.checkpoint.open import open_checkpoint
from pipeline.checkpoint.protocol import Checkpoint
from pipeline.checkpoint.slots import model_slots
from pipeline.engineset.names import EngineNames
from pipeline.engineset.package_vocabulary import vocabulary_faults
from pipeline.model import ModelConfig
from pipeline.toolchain.template_package import Package
from tests.helpers.integer_sets import small_config, write_source
from tests.helpers.packages import write_tokenizer
from tests.helpers.tiny import close_gguf, gguf_order, gguf_writer, tiny_weights

CONFIG = small_config("qwen3", num_hidden_layers=1, vocab_size=12)
BYTE_LEVEL = ["!", "\u0120the", "caf\u00c3\u00a9", "\u010a", "a", "b", "c", "d", "e", "<|end|>", "[PAD10]", "[PAD11]"]
PIECES = ["<unk>", "\u2581the", "caf\u00e9", "\u2581", *"abcdefgh"]


def package(folder: Path, tokenizer: str, vocabulary: int = 12) -> Package:
    names = EngineNames("x_l%d.axmodel", "x_post.axmodel")
    return Package(folder, names, 1, vocabulary, CONFIG.hidden_size, None, tokenizer, "", {})


def source(folder: Path, tokens: list[str] | None, config: ModelConfig = CONFIG) -> Checkpoint:
    """A GGUF with a vocabulary, or without."""
    path = folder / "source.gguf"
    writer = gguf_writer(path, config)
    if tokens is not None:
        writer.add_token_list(tokens)
    weights = tiny_weights(config, 1)
    for slot in model_slots(config):
        writer.add_tensor(slot.gguf, gguf_order(weights[slot.name], slot, config))
    close_gguf(writer)
    return open_checkpoint(path)


def decoded(text: str) -> str:
    """What byte-level tokens stand for, as far as the test has them."""
    return text.replace("\u0120", " ").replace("\u00c3\u00a9", "\u00e9").replace("\u010a", "\n")


def write_json(path: Path, tokens: list[str], added: int = 0) -> None:
    vocab = {token: i for i, token in enumerate(tokens[: len(tokens) - added])}
    extra = [{"id": i, "content": tokens[i]} for i in range(len(tokens) - added, len(tokens))]
    path.write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": extra}))


def faults(folder: Path, name: str, checkpoint: Checkpoint) -> list[str]:
    return list(vocabulary_faults(package(folder, name), checkpoint))


@pytest.mark.parametrize("form", ["texts", "bytes", "pieces", "json", "folder"])
def test_equal_tokens_in_every_form(tmp_path: Path, form: str) -> None:
    tokens = PIECES if form == "pieces" else BYTE_LEVEL
    name = {"json": "tokenizer.json", "folder": "tokenizer"}.get(form, "x_tokenizer.txt")
    if form == "folder":
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "tokenizer.json", tokens[:10], added=1)
    elif form == "json":
        write_json(tmp_path / name, tokens[:10], added=1)
    else:
        kind = {"texts": 3, "bytes": 1, "pieces": 0}[form]
        texts = [decoded(token) for token in tokens] if form == "bytes" else tokens
        write_tokenizer(tmp_path / name, texts, kind)
    assert faults(tmp_path, name, source(tmp_path, tokens)) == []


@pytest.mark.parametrize("form", [0, 1, 3])
def test_token_that_is_another_is_named(tmp_path: Path, form: int) -> None:
    tokens = PIECES if form == 0 else ["<unk>", *"abcdefghijk"]
    other = [*tokens[:5], "zebra", *tokens[6:]]
    write_tokenizer(tmp_path / "t.txt", other, form)
    (line,) = faults(tmp_path, "t.txt", source(tmp_path, tokens))
    assert line == f"{tmp_path}/t.txt: token 5: the package has 'zebra', the source has '{tokens[5]}'"


def test_many_are_counted_and_some_named(tmp_path: Path) -> None:
    tokens = ["<unk>", *"abcdefghijk"]
    write_tokenizer(tmp_path / "t.txt", tokens[::-1])
    lines = faults(tmp_path, "t.txt", source(tmp_path, tokens))
    assert len(lines) == 6
    assert lines[-1].endswith("t.txt: 11 tokens are others than the source's in all")


def test_ids_beyond_the_source_and_sizes(tmp_path: Path) -> None:
    tokens = ["<unk>", *"abcdefghijk"]
    write_tokenizer(tmp_path / "t.txt", [*tokens, "more", "<unk>"])
    checkpoint = source(tmp_path, tokens)
    assert faults(tmp_path, "t.txt", checkpoint) == [
        f"{tmp_path}/t.txt: token ids go up to 12, the source has 12 tokens"
    ]
    found = list(vocabulary_faults(package(tmp_path, "", vocabulary=13), checkpoint))
    assert found == [f"{tmp_path}/config.json: tokens_embed_num: the package has 13, the source has 12"]


@pytest.mark.parametrize(
    "content", ["", "430", "430 7\n1 1 0\n2\n3\na\nb\nc\n", "431 3\n1\n2\n3\na\nb\nc\n", "\x00" * 99]
)
def test_forms_that_are_not_known_are_not_compared(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.txt").write_text(content)
    assert faults(tmp_path, "t.txt", source(tmp_path, list("abcdefghijkl"))) == []
    (tmp_path / "t.json").write_text(content or "[]")
    assert faults(tmp_path, "t.json", source(tmp_path, list("abcdefghijkl"))) == []


def test_source_without_tokens_is_not_compared(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "t.txt", list("abcdefghijkl"))
    assert faults(tmp_path, "t.txt", source(tmp_path, None)) == []


def test_directory_has_its_tokens_beside_its_weights(tmp_path: Path) -> None:
    base = write_source(tmp_path / "base", CONFIG, tiny_weights(CONFIG, 1))
    write_tokenizer(tmp_path / "t.txt", [*BYTE_LEVEL[:9], "<|other|>"])
    assert faults(tmp_path, "t.txt", open_checkpoint(base)) == []
    write_json(base / "tokenizer.json", BYTE_LEVEL[:10], added=1)
    (line,) = faults(tmp_path, "t.txt", open_checkpoint(base))
    assert "token 9: the package has '<|other|>', the source has '<|end|>'" in line
