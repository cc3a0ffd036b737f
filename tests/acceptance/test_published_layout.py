"""Engines of layout seed 0, found byte for byte where a reader written from the published facts looks for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pipeline.checkpoint.noise import write_hf_directory
from pipeline.model import ModelConfig, architecture_of
from tests.helpers.published import Rule, matrix_bytes, quantized, read_matrix, rule_of, scales_of
from tests.helpers.sets import engineset
from tests.helpers.tiny import Float32, tiny_config, tiny_weights


@dataclass(frozen=True)
class Case:
    """Sizes of a model, and the flags of one compile."""

    name: str
    sizes: tuple[int, ...]
    weight_type: str = "s8"
    post: str = "bf16"
    flags: dict[str, Any] = field(default_factory=dict)
    arch: str = "llama"

    @property
    def config(self) -> ModelConfig:
        hidden, ffn, heads, kv_heads, head_dim, vocab = self.sizes
        return tiny_config(
            self.arch,
            hidden_size=hidden,
            intermediate_size=ffn,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=vocab,
            num_hidden_layers=1,
            bos_token_id=None,
            eos_token_ids=(),
        )

    @property
    def rule(self) -> Rule:
        return self.rule_of(self.weight_type)

    def rule_of(self, weight_type: str) -> Rule:
        return rule_of(weight_type, self.flags.get("scale_rule", "row/127"), self.flags.get("scale_type", "bf16"))


ODD = (320, 864, 5, 1, 64, 1000)
CASES = [
    Case("row127", ODD, post="s8"),
    Case("row127.5", (257, 255, 3, 1, 12, 33), flags={"scale_rule": "row/127.5"}, post="s8"),
    Case("group127", (257, 17, 5, 5, 6, 31), flags={"scale_rule": "group/127"}, post="s4", arch="qwen3"),
    Case("group127.5", (37, 513, 1, 1, 36, 15), flags={"scale_rule": "group/127.5"}, arch="qwen2"),
    Case("short", (36, 31, 3, 1, 10, 17), post="s8", arch="qwen2"),
    Case("single", (255, 1, 2, 1, 2, 33), flags={"prefill_share": 0}, post="s8"),
    Case("folded", (320, 33, 5, 1, 64, 65), flags={"fold_norms": True}, post="s8"),
    Case("s4", ODD, "s4", post="s8"),
    Case("s4-fp16", (257, 255, 3, 1, 12, 33), "s4", "s4", {"scale_type": "fp16"}),
    Case("s4-folded", (129, 31, 2, 2, 8, 15), "s4", "s4", {"fold_norms": True}, "qwen3"),
]


@dataclass(frozen=True)
class Compiled:
    """Engines of one checkpoint, and the weights that went in."""

    case: Case
    source: Path
    engines: Path
    weights: dict[str, Float32]

    def data(self, kind: str) -> bytes:
        name = "*_l0_together.axmodel" if kind == "layer" else "*_post.axmodel"
        (path,) = self.engines.glob(name)
        return path.read_bytes()

    def matrices(self) -> list[tuple[str, str, Float32, Rule]]:
        """(kind of engine, name, values as they are to be quantized, rule) of every integer matrix."""
        found = []
        for name, values in self.weights.items():
            kind = "layer" if ".layers." in name else "post"
            weight_type = self.case.weight_type if kind == "layer" else self.case.post
            if values.ndim == 2 and "embed_tokens" not in name and weight_type != "bf16":
                found.append((kind, name, self._folded(name, values), self.case.rule_of(weight_type)))
        return found

    def _folded(self, name: str, values: Float32) -> Float32:
        prefix = "model.layers.0."
        norm = architecture_of(self.case.config).folded_norm(name.removeprefix(prefix))
        if not self.case.flags.get("fold_norms") or not norm:
            return values
        return values * self.weights[prefix + norm if name.startswith(prefix) else norm]


def compiled(folder: Path, case: Case, source: Path | None = None, **changed: Any) -> Path:
    """Run the compiler on a checkpoint; its output directory."""
    output = folder / "-".join(["engines", *map(str, changed.values())])
    flags = {"kv_cache_len": 16, "prefill_len": 8, "corrections": 0} | case.flags | changed
    words = [word for key, value in flags.items() for word in ([f"--{key}"] if value is True else [f"--{key}", value])]
    types = ["-w", case.weight_type, "--post_weight_type", case.post]
    done = engineset("llm-build", "--input_path", source or folder / "hf", "--output_path", output, *types, *words)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    case, folder = request.param, tmp_path_factory.mktemp(request.param.name)
    weights = tiny_weights(case.config, seed=11)
    matrix = weights["model.layers.0.mlp.down_proj.weight"]
    matrix[0], matrix[-1, -1] = 0, 3  # a row of zeros: scale 1; a row whose largest value is its last
    write_hf_directory(folder / "hf", case.config, weights.items(), "F32")
    return Compiled(case, folder, compiled(folder, case), weights)


def test_every_matrix_is_in_the_file_as_published(made: Compiled) -> None:
    assert made.matrices()
    for kind, name, values, rule in made.matrices():
        scales = scales_of(values, rule)
        region = matrix_bytes(quantized(values, scales, rule), scales, rule)
        assert made.data(kind).count(region) == 1, name


def test_vectors_are_bf16_and_folded_norms_are_ones(made: Compiled) -> None:
    ones = np.ones(made.case.config.hidden_size, ml_dtypes.bfloat16).tobytes()
    folds = made.case.flags.get("fold_norms", False)
    for name, values in made.weights.items():
        if values.ndim == 1 and name.startswith("model.layers"):
            stored = values.astype(ml_dtypes.bfloat16).tobytes()
            folded = folds and name.endswith("layernorm.weight")
            assert made.data("layer").count(stored) == (0 if folded else 1), name
    assert (made.data("layer").count(ones) >= 1) == folds


def test_prefill_share_is_stored_a_second_time(made: Compiled) -> None:
    """Whole blocks of 32 rows, 40 % by default, none where the share is 0 or a matrix has fewer than three."""
    share = made.case.flags.get("prefill_share", 0.4)
    for kind, name, values, rule in made.matrices():
        if kind == "post" or len(values) < 96:
            continue
        q = quantized(values, scales_of(values, rule), rule)
        scales, data, blocks = scales_of(values, rule), made.data(kind), len(values) // 32
        parts = [slice(32 * block, 32 * block + 32) for block in range(blocks)]
        twice = sum(data.count(matrix_bytes(q[part], scales[part], rule)) == 2 for part in parts)
        assert abs(twice - share * blocks) <= 1, name


def test_corrections_move_few_elements_by_one_step(made: Compiled) -> None:
    corrected = Compiled(made.case, made.source, compiled(made.source, made.case, corrections=1), made.weights)
    assert len(corrected.data("layer")) == len(made.data("layer"))
    moved = 0
    for kind, name, values, rule in made.matrices():
        scales = scales_of(values, rule)
        q = quantized(values, scales, rule)
        region = matrix_bytes(q, scales, rule)
        at = made.data(kind).index(region)
        found = corrected.data(kind)[at : at + len(region)]
        steps = read_matrix(found, values.shape, rule).astype(int) - q
        assert np.abs(steps).max() <= (1 if rule.weight_type == "s8" else 0), name
        assert np.count_nonzero(steps) <= values.size // 256, name
        assert matrix_bytes((q + steps).astype(np.int8), scales, rule) == found, f"{name}: entries and unused slots"
        moved += np.count_nonzero(steps)
    assert (moved > 0) == (made.case.weight_type == "s8" or made.case.post == "s8")
