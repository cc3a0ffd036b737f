from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest

from pipeline.errors import CheckpointError, MissingFileError
from pipeline.evaluate import control as control_module
from pipeline.evaluate.control import Control
from pipeline.evaluate.llama import LlamaModel
from pipeline.evaluate.twin import write_twin
from pipeline.model import FULL, SLIDING
from tests.helpers.tiny import tiny_config, write_tiny_gguf

RNG = np.random.default_rng(3)
TOKENS = RNG.integers(0, 1000, 40).tolist()

MODELS = {
    "llama": tiny_config("llama"),
    "llama head 48": tiny_config("llama", head_dim=48),
    "llama tied": tiny_config("llama", tie_word_embeddings=True, num_key_value_heads=5),
    "qwen2": tiny_config("qwen2"),
    "qwen3": tiny_config("qwen3"),
    "qwen3 head 48": tiny_config("qwen3", head_dim=48, rope_theta=1e6),
    "gemma3": tiny_config("gemma3"),
    "gemma3 of five layers": tiny_config(
        "gemma3", num_hidden_layers=5, layer_types=(SLIDING, SLIDING, FULL, SLIDING, SLIDING)
    ),
}


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("control") / "tiny.gguf"
    write_tiny_gguf(path, MODELS["llama"], seed=1)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_exact_control_is_llama_cpp(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, MODELS[name], seed=2)
    with LlamaModel(path, 64, 1) as model:
        expected = model.logits(TOKENS)
    found = Control(path, exact=True).logits(TOKENS)
    assert expected.std() > 0.5
    # llama.cpp looks gelu up in a table of half precision
    np.testing.assert_allclose(found, expected, atol=5e-3 if name.startswith("gemma3") else 2e-4)


@pytest.mark.parametrize("qtype", ["Q4_1", "Q8_0", "F16", "BF16"])
def test_exact_control_dequantizes(tmp_path: Path, qtype: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, MODELS["llama"], seed=2, qtype=qtype)
    with LlamaModel(write_twin(path, tmp_path / "twin.gguf"), 64, 1) as twin:
        expected = twin.logits(TOKENS)
    np.testing.assert_allclose(Control(path, exact=True).logits(TOKENS), expected, atol=2e-4)


@pytest.mark.parametrize("name", MODELS)
def test_engine_arithmetic_is_near_and_rounded(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path, MODELS[name], seed=2)
    found, exact = Control(path).logits(TOKENS), Control(path, exact=True).logits(TOKENS)
    assert found.dtype == np.float32
    assert np.array_equal(found, found.astype(ml_dtypes.bfloat16).astype(np.float32))
    error = np.abs(found - exact)
    assert 1e-4 < error.mean() < 0.05 * exact.std()


def test_tokens_one_by_one_are_the_same_bits_as_all_at_once(tiny_path: Path) -> None:
    model = Control(tiny_path)
    session = model.start()
    parts = [session.feed(TOKENS[:7]), *(session.feed([token]) for token in TOKENS[7:20]), session.feed(TOKENS[20:])]
    assert np.array_equal(np.concatenate(parts), model.logits(TOKENS))


class Reversed(Control):
    """Sums in another order."""

    def project(self, x: np.ndarray, name: str) -> np.ndarray:
        weight, bias = self.weight(name).astype(np.float64), name.removesuffix("weight") + "bias"
        operand, half = self.half(x).astype(np.float64), weight.shape[1] // 3
        total = operand[:, :half:-1] @ weight[:, :half:-1].T + operand[:, half::-1] @ weight[:, half::-1].T
        return self.single(total + (self.vector(bias) if self.has(bias) else 0))


def test_another_order_of_sums_gives_the_same_bits(tiny_path: Path) -> None:
    assert np.array_equal(Reversed(tiny_path).logits(TOKENS), Control(tiny_path).logits(TOKENS))


def test_greedy_follows_the_logits(tiny_path: Path) -> None:
    model = Control(tiny_path)
    continuation = model.greedy(TOKENS[:5], 6)
    rows = model.logits([*TOKENS[:5], *continuation])[4:-1]
    assert continuation == rows.argmax(axis=1).tolist()
    assert model.greedy(TOKENS[:5], 6, lambda token: token == continuation[2]) == continuation[:2]


def test_imports_nothing_of_layouts_or_refit() -> None:
    tree = ast.parse(Path(control_module.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.split(".")[0] in ("pipeline", "layouts")} == {
        "pipeline.errors",
        "pipeline.evaluate.control_dimensions",
        "pipeline.evaluate.control_quantize",
        "pipeline.evaluate.control_weights",
    }
    code = "import sys, pipeline.evaluate.control; print(*sorted(m for m in sys.modules if m[:3] in ('pip', 'lay')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    # the errors' root class is the one thing that all packages share
    assert set(loaded) == {
        "layouts",
        "layouts.errors",
        "pipeline",
        "pipeline.errors",
        "pipeline.evaluate",
        "pipeline.evaluate.control",
        "pipeline.evaluate.control_dimensions",
        "pipeline.evaluate.control_quantize",
        "pipeline.evaluate.control_weights",
    }


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        CheckpointError, match=r"other\.gguf: architecture \(expected llama, qwen2, qwen3, gemma3, found mamba\)"
    ):
        Control(path)


def test_a_missing_tensor_is_named(tiny_path: Path) -> None:
    model = Control(tiny_path)
    del model._weights["blk.1.ffn_up.weight"]
    with pytest.raises(CheckpointError, match=r"blk\.1\.ffn_up\.weight: tensor is absent"):
        model.logits(TOKENS)


def test_files_that_are_not_there_or_no_gguf_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"absent\.gguf"):
        Control(tmp_path / "absent.gguf")
    (tmp_path / "text.gguf").write_text("no GGUF at all, whatever its name is")
    with pytest.raises(CheckpointError, match=r"text\.gguf"):
        Control(tmp_path / "text.gguf")


@pytest.mark.parametrize("exact", [False, True])
def test_attention_by_blocks_is_attention_at_once(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """Blocks that divide the tokens and blocks that do not, from an empty cache and after a part of the text."""
    model = Control(tiny_path, exact=exact)
    whole = model.logits(TOKENS)
    for block in (1, 8, 7):
        monkeypatch.setattr(control_module, "BLOCK_TOKENS", block)
        session = model.start()
        parts = np.concatenate([session.feed(TOKENS[:11]), session.feed(TOKENS[11:])])
        np.testing.assert_allclose(parts, whole, atol=1e-9 if exact else 0)
