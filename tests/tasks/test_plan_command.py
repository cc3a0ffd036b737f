"""`engineset plan`: what a build would do, equal to what it does, and nothing written before."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.helpers.integer_sets import S8, configure, low_rank, make_set, small_config, write_peft, write_source
from tests.helpers.packages import make_package
from tests.helpers.sets import Tiny, built, contents, engineset
from tests.helpers.tiny import close_gguf, gguf_writer, tiny_weights


def plan(tiny: Tiny, *arguments: object) -> subprocess.CompletedProcess[str]:
    return engineset("plan", "--config", tiny.config, "--build-dir", tiny.build, *arguments)


def planned(tiny: Tiny, *arguments: object) -> dict[str, Any]:
    done = plan(tiny, "--json", *arguments)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    return document


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def weights(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`kind layer tensor` -> weight."""
    return {f"{e['kind']} {e['layer']} {w['tensor']}": w for e in document["engines"] for w in e["weights"]}


def test_nothing_is_known_of_templates_that_are_not_there(tmp_path: Path) -> None:
    tiny = make_set(tmp_path, small_config("llama"), 1)
    before = files(tmp_path)
    document = planned(tiny)
    assert files(tmp_path) - before <= {"build/hashes.sqlite"}
    assert document["cache"] == str(tiny.build)
    assert document["confirmed"] == "no"
    assert "decode needed" in document["why"][0]
    assert document["totals"] == {"planned_bytes": None, "changed_bytes": None, "clipped": 0}
    assert {weight["codec"] for weight in weights(document).values()} == {"bf16"}
    found = weights(document)
    query = found["layer 1 self_attn.q_proj.weight"]
    assert query["transforms"] == ["rows of each head de-interleaved"]
    assert query["sources"] == [
        {
            "name": "model.layers.1.self_attn.q_proj.weight",
            "stored_as": "blk.1.attn_q.weight",
            "file": "tiny.gguf",
            "type": "F32",
        }
    ]
    assert found["layer 0 mlp.up_proj.weight"]["transforms"] == []
    text = plan(tiny)
    assert text.returncode == 0
    assert "blk.1.attn_q.weight F32" in text.stdout
    assert "no; no layout for these templates yet, decode needed" in text.stdout


@pytest.mark.parametrize("scales", ["refit", "search", "engine"])
def test_forecast_is_what_the_build_reports(tmp_path: Path, scales: str) -> None:
    config = small_config("qwen3", num_hidden_layers=1)
    tiny = make_set(tmp_path, config, 1)
    write_source(tmp_path / "base", config, {name: w / 3 for name, w in tiny_weights(config, 7).items()})
    flags = {"checkpoint": {"path": "base"}, **S8, "fold_norms": True}
    configure(tiny, "qwen3", {"scales": scales}, **flags)
    built(tiny, "--gguf", tmp_path / "base")
    before = contents(tiny.set), files(tmp_path)
    document = planned(tiny)
    assert (contents(tiny.set), files(tmp_path)) == before
    assert (document["confirmed"], document["why"]) == ("yes", [])
    manifest = json.loads((built(tiny) / "manifest.json").read_text())
    assert len(document["engines"]) == len(manifest["engines"])
    for engine in document["engines"]:
        report = manifest["engines"][engine["file"]]
        assert {key: engine[key] for key in ("planned_bytes", "changed_bytes")} == {
            key: report[key] for key in ("planned_bytes", "changed_bytes")
        }
        for weight in engine["weights"]:
            told = report["tensors"][weight["tensor"]]
            assert [part["name"] for part in weight["sources"]] == told["sources"]
            assert {key: weight[key] for key in ("codec", "elements", "clipped")} == {
                key: told[key] for key in ("codec", "elements", "clipped")
            }
    clipped = sum(t["clipped"] for report in manifest["engines"].values() for t in report["tensors"].values())
    assert document["totals"]["clipped"] == clipped
    assert (clipped > 0) == (scales != "refit")
    gate = weights(document)["layer 0 mlp.gate_proj.weight"]
    assert gate["transforms"] == ["gain of model.layers.0.post_attention_layernorm.weight folded in"]


def test_transforms_of_a_directory_with_an_adapter(tmp_path: Path) -> None:
    config = small_config("gemma3")
    tiny = make_set(tmp_path, config, 1)
    write_source(tmp_path / "base", config, tiny_weights(config, 1))
    name = "model.layers.1.mlp.down_proj.weight"
    adapter = write_peft(tmp_path / "adapter", low_rank(config, [name], 1), 6)
    document = planned(tiny, "--gguf", tmp_path / "base", "--lora", adapter, "--lora-scale", 0.5)
    found = weights(document)
    assert found["layer 1 mlp.down_proj.weight"]["transforms"] == [f"adapter merged into {name}"]
    assert found["layer 0 mlp.down_proj.weight"]["transforms"] == []
    assert found["layer 0 input_layernorm.weight"]["transforms"] == ["model.layers.0.input_layernorm.weight plus 1"]
    assert found["post 0 model.norm.weight"]["transforms"] == ["model.norm.weight plus 1"]
    assert found["embedding 0 model.embed_tokens.weight"]["transforms"] == ["times 8"]
    assert document["adapter"].endswith("adapter x 0.5")


def test_all_faults_at_once(tmp_path: Path) -> None:
    """Of another size, with a tensor that nothing takes; the package is of the right one."""
    made = make_package(tmp_path, small_config("qwen3"))
    other = small_config("qwen3", intermediate_size=128)
    writer = gguf_writer(made.gguf, other)
    names = {"lm_head.weight": "output.weight"}
    write_source(made.gguf, other, tiny_weights(other, 2))
    reader = gguf.GGUFReader(made.gguf)
    tensors = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    writer = gguf_writer(made.gguf, other)
    for name, data in (tensors | {"blk.1.extra.weight": np.zeros((3, 32), np.float32)}).items():
        writer.add_tensor(names.get(name, name), data)
    close_gguf(writer)
    document = planned(made)
    assert not document["ok"]
    faults = document["faults"]
    assert faults["missing"] == faults["refused"] == []
    assert [line for line in faults["unused"] if "blk.1.extra.weight" in line] == faults["unused"]
    assert len(faults["unused"]) == 1
    wrong = [line.split(": ")[1] for line in faults["mismatched"]]
    assert wrong == ["intermediate_size"] + [
        f"model.layers.{n}.mlp.{which}_proj.weight" for n in (0, 1) for which in ("gate", "up", "down")
    ]
    done = plan(made)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == sorted(
        f"error: {line}" for line in faults["mismatched"] + faults["unused"]
    )


@pytest.mark.parametrize("harm", ["engine", "checkpoint"])
def test_templates_that_cannot_be_confirmed_are_refused_with_the_builds_words(tmp_path: Path, harm: str) -> None:
    config = small_config("qwen3", num_hidden_layers=1)
    tiny = make_set(tmp_path, config, 1)
    base = write_source(tmp_path / "base.gguf", config, tiny_weights(config, 5))
    done = engineset("llm-build", "--input_path", base, "--output_path", tmp_path / "finished", "--kv_cache_len", 16)
    assert done.returncode != 0, "a prefill chunk of 128 tokens does not fit"
    flags = ("--kv_cache_len", 16, "--prefill_len", 8)
    done = engineset("llm-build", "--input_path", base, "--output_path", tmp_path / "finished", *flags)
    assert done.returncode == 0, done.stderr
    configure(tiny, "qwen3", dir="finished")
    built(tiny)
    if harm == "engine":
        engine = tmp_path / "finished" / "qwen3_post.axmodel"
        data = bytearray(engine.read_bytes())
        data[len(data) // 2] ^= 1
        engine.write_bytes(bytes(data))
    else:
        write_source(base, config, tiny_weights(config, 6))
        (tiny.build / "confirmed").rename(tmp_path / "gone")
    document = planned(tiny)
    assert (document["confirmed"], document["ok"]) == ("refused", False)
    write_source(tiny.gguf, config, tiny_weights(config, 3))
    result = tiny.luigi()
    assert result.returncode != 0
    (reason,) = document["why"]
    assert f"error: {reason}" in result.stderr
    assert document["engines"][0]["planned_bytes"] > 0
    assert document["engines"][0]["changed_bytes"] is None


def test_vendor_directory_before_and_after_its_decode(tmp_path: Path) -> None:
    made = make_package(tmp_path, small_config("qwen3"), layout_seed=4)
    document = planned(made)
    assert (document["confirmed"], document["ok"]) == ("no", True)
    assert "decode needed" in document["why"][0]
    assert document["engines"][0]["file"] == "vendor7b_p8_l0_together.axmodel"
    built(made)
    write_source(made.gguf, small_config("qwen3"), tiny_weights(small_config("qwen3"), 9))
    document = planned(made)
    assert document["confirmed"] == "yes"
    assert document["totals"]["changed_bytes"] > 0
    made.layer(1).unlink()
    document = planned(made)
    assert [line.split("/")[-1] for line in document["faults"]["mismatched"]] == [
        "vendor7b_p8_l1_together.axmodel: the package lacks an engine"
    ]
