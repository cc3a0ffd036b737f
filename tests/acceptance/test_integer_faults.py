"""Bad input of integer builds: one line, nothing half-written; damage that only a read-back sees is named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.integer_sets import S4, S8, configure, make_set, small_config
from tests.helpers.sets import Tiny, built, engineset
from tests.helpers.tiny import Float32, tiny_weights, write_gguf

CONFIG = small_config("qwen3")
UP = "mlp.up_proj.weight"
LAYER = "qwen3_p8_l1_together.axmodel"


def refusal(tiny: Tiny, *arguments: object) -> str:
    before = sorted(path.name for path in tiny.build.glob("sets/*"))
    done = tiny.luigi(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tiny.build.glob("sets/*")) == before
    assert not list(tiny.build.rglob("*.partial"))
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make_set(tmp_path_factory.mktemp("faults"), CONFIG, 1, **S8, layout_seed=0, prefill_share=0.7)
    built(made)
    return made


def too_small(rows: Float32) -> None:
    rows[3] = np.float32(1e-39)


def too_large(rows: Float32) -> None:
    rows[3, 5] = np.float32(7e5)


@pytest.mark.parametrize(
    ("flags", "spoil"), [(S8, too_small), (S4, too_small), (S4 | {"scale_type": "fp16"}, too_large)]
)
def test_scale_entry_that_would_be_zero_or_infinite(
    tmp_path: Path, flags: dict[str, Any], spoil: Callable[[Float32], None]
) -> None:
    made = make_set(tmp_path, CONFIG, 1, **flags, layout_seed=2)
    weights = tiny_weights(CONFIG, 1)
    spoil(weights[f"model.layers.1.{UP}"])
    made.gguf.unlink()
    write_gguf(made.gguf, CONFIG, weights)
    if flags is S4:
        built(made)  # bf16 holds the scale itself, and s4 has no reciprocal
        return
    line = refusal(made)
    assert str(made.gguf) in line and "blk.1.ffn_up.weight" in line and re.search(r"\b3\b", line)


def test_template_of_another_type(tiny: Tiny, tmp_path: Path) -> None:
    """Finished templates whose layouts are not those that their description says."""
    directory = next(path.parent for path in tiny.build.glob("templates/*/template.json"))
    spoilt = Path(shutil.copytree(directory, tmp_path / "templates"))
    described = json.loads((spoilt / "template.json").read_text())
    described["options"]["weight_type"] = "bf16"
    described["options"]["post_weight_type"] = ""
    (spoilt / "template.json").write_text(json.dumps(described))
    configure(tiny, "qwen3", dir=str(spoilt))
    line = refusal(tiny)
    assert str(spoilt) in line
    configure(tiny, "qwen3", **S8, layout_seed=0, prefill_share=0.7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("weight_type", "s3"),
        ("post_weight_type", "fp16"),
        ("scale_rule", "row/128"),
        ("scale_type", "fp32"),
        ("prefill_share", 1.5),
        ("corrections", -0.1),
    ],
)
def test_flags_that_are_none(tiny: Tiny, key: str, value: object) -> None:
    configure(tiny, "qwen3", **(S8 | {key: value}))
    line = refusal(tiny)
    assert f"templates.{key}" in line
    configure(tiny, "qwen3", **S8, layout_seed=0, prefill_share=0.7)


def places(directory: Path, name: str, row: int, col: int) -> dict[str, Any]:
    done = engineset("locate", directory / "layer.layout.toml", name, row, col, "--json")
    return dict(json.loads(done.stdout))


def flip(path: Path, place: dict[str, Any], bit: int = 0) -> None:
    """Change one bit of a place."""
    at = 8 * place["byte"] + place["bit"] + bit
    data = bytearray(path.read_bytes())
    data[at // 8] ^= 1 << at % 8
    path.write_bytes(data)


def one_nibble(directory: Path) -> None:
    flip(directory / LAYER, places(directory, UP, 20, 40)["places"][0])


def stale_prefill_copy(directory: Path) -> None:
    found = places(directory, UP, 20, 40)["places"]
    flip(directory / LAYER, next(place for place in found if place["copy"] == "prefill"))


def scale_by_one_place(directory: Path) -> None:
    flip(directory / LAYER, places(directory, UP, 20, 40)["scale"][0], 16)


def reciprocal_by_one_place(directory: Path) -> None:
    flip(directory / LAYER, places(directory, UP, 20, 40)["scale"][0], 0)


@pytest.mark.parametrize("spoil", [one_nibble, stale_prefill_copy, scale_by_one_place, reciprocal_by_one_place])
def test_verify_names_what_no_perplexity_sees(tiny: Tiny, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    directory = Path(shutil.copytree(tiny.set, tmp_path / "spoilt"))
    spoil(directory)
    done = engineset("verify", directory, "--json")
    assert done.returncode == 1
    faults = [fault for fault in json.loads(done.stdout)["faults"] if "sha256" not in fault]
    (fault,) = faults
    assert LAYER in fault and UP in fault and re.search(r"\b20\b", fault)
    if spoil is stale_prefill_copy:
        assert "prefill" in fault
