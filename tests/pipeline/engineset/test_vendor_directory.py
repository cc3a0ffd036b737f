"""A set is a directory that the vendor's runtime can load (axclrt facts, section 6), and says where it came from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest

from pipeline.engineset.manifest import read_manifest
from pipeline.engineset.names import EngineNames, engine_file
from pipeline.engineset.vendor_config import vendor_files
from pipeline.engineset.verify import verify_set
from pipeline.model import FULL, SLIDING
from tests.helpers.sets import Tiny, build_tiny, make_tiny, write_config
from tests.helpers.tiny import tiny_config, tiny_weights

NAMES = EngineNames("x_p128_l%d_together.axmodel", "x_post.axmodel")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_tiny(tmp_path_factory.mktemp("set"), "qwen3", qtype="Q8_0")


def test_directory_holds_what_the_vendors_does(tiny: Tiny) -> None:
    assert sorted(path.name for path in tiny.set.iterdir()) == [
        "config.json",
        "embedding.layout.toml",
        "layer.layout.toml",
        "manifest.json",
        "model.embed_tokens.weight.bfloat16.bin",
        "post.layout.toml",
        "post_config.json",
        "qwen3_p8_l0_together.axmodel",
        "qwen3_p8_l1_together.axmodel",
        "qwen3_post.axmodel",
    ]
    assert not [path for path in tiny.set.iterdir() if path.is_symlink()]


def test_set_lies_under_its_identity_and_the_link_is_relative(tiny: Tiny) -> None:
    manifest = read_manifest(tiny.set)
    assert tiny.set.readlink() == Path(f"tiny-{manifest.identity}")
    assert len(manifest.identity) == 16


def test_config_names_every_file_that_is_there(tiny: Tiny) -> None:
    config = json.loads((tiny.set / "config.json").read_text())
    assert config["model_name"] == "tiny"
    assert config["axmodel_num"] == 2
    layers = [config["template_filename_axmodel"] % layer for layer in range(2)]
    named = [*layers, config["filename_post_axmodel"], config["filename_tokens_embed"], config["post_config_path"]]
    assert all((tiny.set / name).is_file() for name in named)
    assert (config["tokens_embed_num"], config["tokens_embed_size"]) == (1000, 320)
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, [2])
    assert (config["tokenizer_type"], config["url_tokenizer_model"]) == ("none", "")
    post = json.loads((tiny.set / "post_config.json").read_text())
    assert not any(post[key] for key in post if key.startswith("enable_"))


def test_config_without_special_tokens_leaves_their_keys_out() -> None:
    files = vendor_files("x", tiny_config(bos_token_id=None, eos_token_ids=()), NAMES, "tokenizer.json")
    config = json.loads(files["config.json"])
    assert not {"bos_token_id", "eos_token_id"} & set(config)
    assert config["url_tokenizer_model"] == "tokenizer.json"


def test_config_has_the_layers_that_slide_and_the_kept_rows() -> None:
    plain = json.loads(vendor_files("x", tiny_config(), NAMES, None)["config.json"])
    assert not {"layer_types", "sliding_window", "filename_vocab_keep"} & set(plain)
    types = (SLIDING, FULL)
    sliding = tiny_config("gemma3", layer_types=types, sliding_window=4, rope_local_theta=100.0, kept_rows=7)
    config = json.loads(vendor_files("x", sliding, NAMES, None)["config.json"])
    assert (config["layer_types"], config["sliding_window"]) == (list(types), 4)
    assert (config["filename_vocab_keep"], config["tokens_embed_num"]) == ("vocab_keep.json", 1000)


def test_trimmed_head_that_loses_an_end_of_text_warns(tmp_path: Path) -> None:
    made = make_tiny(tmp_path, vocab_size=70)
    write_config(made.config, "qwen2", top={"vocab_keep": "ids.json"})
    (tmp_path / "ids.json").write_text("[5, 69, 7]")
    result = made.luigi()
    assert result.returncode == 0, result.stderr
    assert "warning: the head does not keep these ids that end a text: 2" in result.stderr.splitlines()
    assert json.loads((made.set / "vocab_keep.json").read_text()) == [5, 69, 7]
    manifest = read_manifest(made.set)
    assert (manifest.source.vocab_keep, manifest.model.kept_rows) == ("vocab_keep.json", 3)
    report = manifest.engines["qwen2_post.axmodel"]["tensors"]["lm_head.weight"]
    assert report["elements"] == 3 * 320
    assert verify_set(made.set).faults == []


def test_embedding_is_the_source_in_bf16(tiny: Tiny) -> None:
    (tensor,) = (t for t in gguf.GGUFReader(tiny.gguf).tensors if t.name == "token_embd.weight")
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    expected = values.astype(ml_dtypes.bfloat16).tobytes()
    assert (tiny.set / "model.embed_tokens.weight.bfloat16.bin").read_bytes() == expected


def test_manifest_hashes_every_file_and_names_the_source(tiny: Tiny) -> None:
    manifest = read_manifest(tiny.set)
    hashes = {
        path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in tiny.set.iterdir()
        if path.name != "manifest.json"
    }
    assert {name: (entry.size, entry.sha256) for name, entry in manifest.files.items()} == hashes
    assert manifest.source.files == {"tiny.gguf": hashlib.sha256(tiny.gguf.read_bytes()).hexdigest()}
    assert Path(manifest.source.path) == tiny.gguf
    tensors = gguf.GGUFReader(tiny.gguf).tensors
    assert sum(manifest.source.tensor_types.values()) == len(tensors)
    assert set(manifest.source.tensor_types) == {tensor.tensor_type.name for tensor in tensors}
    assert manifest.model == tiny_config("qwen3")
    assert manifest.template.options["layout_seed"] == 3


def test_manifest_reports_every_weight(tiny: Tiny) -> None:
    manifest = read_manifest(tiny.set)
    config = manifest.model
    weights = tiny_weights(config, 1)
    reported = {}
    for layer in range(2):
        report = manifest.engines[engine_file(config, 8, "layer", layer)]
        reported |= {f"model.layers.{layer}.{name}": tensor for name, tensor in report["tensors"].items()}
        assert 0 < report["changed_bytes"] <= report["planned_bytes"]
    for kind in ("post", "embedding"):
        reported |= manifest.engines[engine_file(config, 8, kind)]["tensors"]
    assert set(reported) == set(weights)
    for name, report in reported.items():
        assert report["elements"] == weights[name].size
        assert report["codec"] == "bf16"
        assert report["clipped"] == 0
        assert 0 < report["max_error"] <= np.abs(weights[name]).max() / 128
