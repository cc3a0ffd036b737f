"""`scales = refit | search | engine`, and heads that keep a part of the vocabulary, against arithmetic of the tests' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.integer_sets import S4, S8, compile_directly, configure, engine_bytes, make_set, small_config
from tests.helpers.published import matrix_bytes, quantized, read_matrix, rule_of, scales_of
from tests.helpers.sets import Tiny, built, engineset
from tests.helpers.tiny import Float32, tiny_weights, write_gguf

CONFIG = small_config("qwen2", num_hidden_layers=1)
LAYER, POST = "qwen2_p8_l0_together.axmodel", "qwen2_post.axmodel"
RULE = rule_of("s8")
BASE = tiny_weights(CONFIG, 1)


def matrices(weights: dict[str, Float32]) -> dict[str, Float32]:
    return {name: w for name, w in weights.items() if w.ndim == 2 and ".layers." in name}


def fine_tuned() -> dict[str, Float32]:
    """A small change of everything, and rows whose maxima it trebles."""
    random = np.random.default_rng(8)
    changed = {name: w + random.standard_normal(w.shape, np.float32) * np.float32(2e-3) for name, w in BASE.items()}
    changed["model.layers.0.mlp.up_proj.weight"][5:9] *= 3
    return {name: w.astype(np.float32) for name, w in changed.items()}


@pytest.fixture(scope="module")
def engine_mode(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Templates of BASE with corrections, the fine-tune as source."""
    made = make_set(tmp_path_factory.mktemp("modes"), CONFIG, 1)
    write_gguf(made.folder / "base.gguf", CONFIG, BASE)
    made.gguf.unlink()
    write_gguf(made.gguf, CONFIG, fine_tuned())
    configure(made, "qwen2", {"scales": "engine"}, **S8, layout_seed=0, checkpoint={"path": "base.gguf"}, corrections=1)
    built(made)
    return made


def test_engine_mode_keeps_scales_and_corrections(engine_mode: Tiny, tmp_path: Path) -> None:
    flags = {**S8, "layout_seed": 0}
    corrected = compile_directly(engine_mode.folder / "base.gguf", tmp_path / "a", corrections=1, **flags)[LAYER]
    exact = compile_directly(engine_mode.folder / "base.gguf", tmp_path / "b", corrections=0, **flags)[LAYER]
    found = engine_bytes(engine_mode.set)[LAYER]
    report = json.loads((engine_mode.set / "manifest.json").read_text())["engines"][LAYER]
    kept_in_all = 0
    for name, values in matrices(fine_tuned()).items():
        scales = scales_of(BASE[name], RULE)
        region = matrix_bytes(quantized(BASE[name], scales, RULE), scales, RULE)
        at = exact.index(region)
        template = read_matrix(corrected[at : at + len(region)], values.shape, RULE).astype(int)
        new = quantized(values, scales, RULE).astype(int)
        kept = np.abs(template - new) <= 1
        expected = np.where(kept, template, new).astype(np.int8)
        assert matrix_bytes(expected, scales, RULE) == found[at : at + len(region)], name
        steps = np.rint(values / scales[:, :1])
        told = tensor_report(report, name)
        assert told["scales"] == "engine"
        assert told["clipped"] == np.count_nonzero((steps > 127) | (steps < -128)), name
        assert told["clipped"] > 0 or "up_proj" not in name
        assert told["corrected_kept"] == np.count_nonzero(kept & (template != new)), name
        kept_in_all += np.count_nonzero(kept & (template != new))
    assert kept_in_all > 0


def tensor_report(report: dict[str, Any], name: str) -> dict[str, Any]:
    """The report of a tensor, whatever the report calls its list."""
    plain = name.removeprefix("model.layers.0.")
    for value in report.values():
        if isinstance(value, dict) and plain in value:
            return dict(value[plain])
        if isinstance(value, list):
            for item in value:
                if isinstance(item, dict) and item.get("name", item.get("tensor")) == plain:
                    return item
    raise AssertionError(f"no report of {plain}: {report}")


def test_engine_mode_is_verified(engine_mode: Tiny) -> None:
    done = engineset("verify", engine_mode.set, "--json")
    assert done.returncode == 0, done.stderr


def refusal(tiny: Tiny) -> str:
    before = sorted(path.name for path in tiny.build.glob("sets/*"))
    done = tiny.luigi()
    assert done.returncode != 0
    assert sorted(path.name for path in tiny.build.glob("sets/*")) == before
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


def test_engine_mode_refuses_templates_of_noise_and_patched_ones(engine_mode: Tiny) -> None:
    configure(engine_mode, "qwen2", {"scales": "engine"}, **S8, layout_seed=0)
    assert "noise" in refusal(engine_mode)
    configure(engine_mode, "qwen2", {"scales": "engine"}, dir=str(engine_mode.set.resolve()))
    refusal(engine_mode)


def test_search_is_no_worse_than_refit_in_any_entry(tmp_path: Path) -> None:
    """Every entry's squared error, read with the published layout."""
    rule = rule_of("s4")
    engines = {}
    for mode in ("refit", "search"):
        made = make_set(tmp_path / mode, CONFIG, 1, {"scales": mode}, **S4, layout_seed=0)
        built(made)
        engines[mode] = engine_bytes(made.set)[LAYER]
    smaller = 0
    for name, values in matrices(BASE).items():
        scales = scales_of(values, rule)
        region = matrix_bytes(quantized(values, scales, rule), scales, rule)
        at = engines["refit"].index(region)
        found = engines["search"][at : at + len(region)]
        searched = best_scales(values)
        assert matrix_bytes(quantized(values, searched, rule), searched, rule) == found, name
        smaller += np.count_nonzero(searched < scales)
    assert smaller > 0


def best_scales(values: Float32) -> Float32:
    """By the text of docs/quantization.md, entry by entry."""
    rule = rule_of("s4")
    found = scales_of(values, rule)
    for row in range(len(values)):
        for group in range(found.shape[1]):
            part = values[row : row + 1, group * 128 : (group + 1) * 128]
            tried = [found[row : row + 1, group : group + 1], *(smaller_scale(part, j) for j in range(1, 32))]
            errors = [squared_error(part, scale) for scale in tried]
            found[row, group] = tried[int(np.argmin(errors))][0, 0]
    return found


def smaller_scale(part: Float32, j: int) -> Float32:
    wanted = float(np.abs(part).max()) * (1 - j / 64) / 7
    bits = int(np.float32(wanted).view(np.uint32)) >> 16
    while float(np.uint32(bits << 16).view(np.float32)) < wanted:
        bits += 1
    return np.full((1, 1), np.uint32(bits << 16).view(np.float32), np.float32)


def squared_error(part: Float32, scale: Float32) -> float:
    q = quantized(part, scale, rule_of("s4"))
    return float(np.square(part.astype(np.float64) - q.astype(np.float32) * scale).sum())


def test_inspect_counts_clipped_elements_by_tensor(engine_mode: Tiny) -> None:
    told = json.loads(engineset("inspect", engine_mode.set, "--json").stdout)["clipped"]
    report = json.loads((engine_mode.set / "manifest.json").read_text())["engines"][LAYER]["tensors"]
    own = {f"{LAYER}: {name}": tensor["clipped"] for name, tensor in report.items() if tensor["clipped"]}
    assert own
    assert own.items() <= told.items()
    shown = engineset("inspect", engine_mode.set).stdout
    assert f"{sum(told.values())} elements in {len(told)} tensors" in shown


@pytest.mark.parametrize(
    ("flag", "reason"), [("--lora", "no adapter was merged"), ("--base", "does not keep the scales of its engines")]
)
def test_evaluate_refuses_what_the_set_has_not(tmp_path: Path, flag: str, reason: str) -> None:
    made = make_set(tmp_path, CONFIG, 1)
    built(made)
    done = engineset("evaluate", made.set, flag, made.gguf)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert reason in done.stderr
