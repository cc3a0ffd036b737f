"""`engineset verify` finds a changed byte in any file of a set, and a set that holds other weights than its source."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from layouts.sidecar import read_layout
from pipeline.axmodel.walk import walk_engine
from pipeline.engineset import verify
from pipeline.engineset.manifest import AdapterEntry, FileEntry, encode_manifest, read_manifest
from pipeline.engineset.verify import verify_set
from pipeline.files import file_sha256
from tests.helpers.engines import overwrite
from tests.helpers.integer_sets import low_rank, write_peft
from tests.helpers.sets import Tiny, build_tiny, engineset, make_tiny
from tests.helpers.tiny import tiny_config

FILES = (
    "config.json",
    "embedding.layout.toml",
    "layer.layout.toml",
    "model.embed_tokens.weight.bfloat16.bin",
    "post.layout.toml",
    "post_config.json",
    "qwen2_p8_l0_together.axmodel",
    "qwen2_p8_l1_together.axmodel",
    "qwen2_post.axmodel",
)
LAYER = "qwen2_p8_l1_together.axmodel"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return build_tiny(tmp_path_factory.mktemp("verify"))


@pytest.fixture
def copy(tiny: Tiny, tmp_path: Path) -> Iterator[Path]:
    """A copy of the set that a test may spoil."""
    shutil.copytree(tiny.set, tmp_path / "set")
    yield tmp_path / "set"
    shutil.rmtree(tmp_path / "set")


def reseal(directory: Path) -> None:
    """What a forger does who knows the format: new hashes, new seal."""
    manifest = read_manifest(directory)
    for name in manifest.files:
        path = directory / name
        manifest.files[name] = FileEntry(path.stat().st_size, file_sha256(path))
    (directory / "manifest.json").write_bytes(encode_manifest(manifest))


def element(directory: Path, name: str, copy: str, row: int) -> int:
    """File offset of the first element of a row in a copy of a layer's weight."""
    stored = read_layout(directory / "layer.layout.toml")[name]
    (held,) = (item for item in stored.copies if item.name == copy)
    address = int(held.planes[0].addresses(row, row + 1)[0, 0])
    return walk_engine(directory / LAYER).weights.offset + address // 8


def flip(path: Path, offset: int) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        (value,) = file.read(1)
    overwrite(path, offset, bytes([value ^ 1]))


def test_files_are_all_files(tiny: Tiny) -> None:
    assert sorted(path.name for path in tiny.set.iterdir() if path.name != "manifest.json") == list(FILES)


def test_whole_set_is_verified(tiny: Tiny) -> None:
    result = verify_set(tiny.set)
    assert result.faults == []
    assert result.files == len(FILES)
    weights = sum(len(tensors) for tensors in read_manifest(tiny.set).engines.values())
    assert weights
    reports = [t for engine in read_manifest(tiny.set).engines.values() for t in engine["tensors"].values()]
    assert result.elements == sum(report["elements"] for report in reports)


@pytest.mark.parametrize("where", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", FILES)
def test_changed_byte_of_any_file_is_found(copy: Path, name: str, where: float) -> None:
    path = copy / name
    flip(path, int(where * (path.stat().st_size - 1)))
    faults = verify_set(copy).faults
    assert any(str(path) in fault and "sha256" in fault for fault in faults)


def test_changed_byte_of_the_manifest_is_found(copy: Path) -> None:
    flip(copy / "manifest.json", (copy / "manifest.json").stat().st_size // 2)
    (fault,) = verify_set(copy).faults
    assert fault.startswith(f"{copy}/manifest.json: ")


def test_missing_longer_and_additional_files_are_found_at_once(copy: Path) -> None:
    (copy / "config.json").unlink()
    with (copy / "post_config.json").open("a") as file:
        file.write(" ")
    (copy / "extra.bin").write_bytes(b"x")
    faults = verify_set(copy).faults
    assert len(faults) == 3
    for name, reason in (
        ("extra.bin", "not in the manifest"),
        ("config.json", "missing"),
        ("post_config.json", "size"),
    ):
        assert any(name in fault and reason in fault for fault in faults)


@pytest.mark.parametrize("row", [300, 431])
def test_stale_prefill_copy_is_found_under_true_hashes(copy: Path, row: int) -> None:
    """One copy of two holds another weight: hashes that were taken afterwards do not help."""
    name = "mlp.up_proj.weight"
    flip(copy / LAYER, element(copy, name, "prefill", row))
    reseal(copy)
    (fault,) = verify_set(copy).faults
    assert LAYER in fault
    assert f"{name}[{row}, 0] prefill copy" in fault


def test_weight_changed_under_true_hashes_is_found(copy: Path) -> None:
    flip(copy / LAYER, element(copy, "self_attn.q_proj.bias", "decode", 0))
    reseal(copy)
    (fault,) = verify_set(copy).faults
    assert "self_attn.q_proj.bias[0, 0] decode copy" in fault


def test_layers_that_changed_places_are_found(copy: Path) -> None:
    first, second = copy / "qwen2_p8_l0_together.axmodel", copy / LAYER
    first.rename(copy / "x")
    second.rename(first)
    (copy / "x").rename(second)
    reseal(copy)
    assert len(verify_set(copy).faults) == 2


def test_wrong_source_is_found(tiny: Tiny, copy: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", seed=2)
    faults = verify_set(copy, other.gguf).faults
    assert len(faults) == 4
    assert all("reads back otherwise" in fault for fault in faults)


def test_engine_that_the_manifest_does_not_list_is_a_fault(copy: Path) -> None:
    manifest = read_manifest(copy)
    del manifest.files[LAYER]
    (copy / "manifest.json").write_bytes(encode_manifest(manifest))
    (copy / LAYER).unlink()
    assert verify_set(copy).faults == [f"{copy / LAYER}: the manifest lists no such engine"]


def test_adapter_of_a_set_that_has_none(copy: Path) -> None:
    (fault,) = verify_set(copy, adapter=copy).faults
    assert fault == f"{copy / 'manifest.json'}: the set was built without an adapter; no weight was read back"


def test_adapter_that_has_changed_since_is_named(copy: Path, tmp_path: Path) -> None:
    manifest, config = read_manifest(copy), tiny_config("qwen2")
    path = write_peft(tmp_path / "adapter", low_rank(config, ["model.layers.0.mlp.up_proj.weight"], 1), 6)
    hashes = {file.name: file_sha256(file) for file in path.iterdir()} | {"adapter_config.json": "0" * 64}
    source = msgspec.structs.replace(manifest.source, adapter=AdapterEntry(str(path), 1.0, hashes))
    (copy / "manifest.json").write_bytes(encode_manifest(msgspec.structs.replace(manifest, source=source)))
    (fault,) = verify_set(copy).faults
    assert fault.startswith(f"{path / 'adapter_config.json'}: not the adapter that the set was built from")
    assert "mlp.up_proj.weight[0, " in verify_set(copy, adapter=path).faults[0]


def test_source_of_another_shape_is_refused(copy: Path, tmp_path: Path) -> None:
    other = make_tiny(tmp_path / "other", num_hidden_layers=1)
    (fault,) = verify_set(copy, other.gguf).faults
    assert fault.startswith(f"{other.gguf}: num_hidden_layers: ")
    assert fault.endswith("; no weight was read back")


def test_hashes_are_checked_without_the_source(tmp_path: Path) -> None:
    """A source that changed or is gone is one fault line; a changed byte of the set is found all the same."""
    made = build_tiny(tmp_path / "own")
    flip(made.gguf, made.gguf.stat().st_size - 1)
    (fault,) = verify_set(made.set).faults
    assert fault.startswith(f"{made.gguf}: not the source that the set was built from")
    made.gguf.unlink()
    (fault,) = verify_set(made.set).faults
    assert fault.startswith(f"{made.gguf}: ") and fault.endswith("name it with --gguf; no weight was read back")
    flip(made.set / LAYER, 1000)
    result = engineset("verify", made.set, "--json")
    found = json.loads(result.stdout)
    assert (result.returncode, found["ok"], found["files"], found["elements"]) == (1, False, len(FILES), 0)
    assert [line.split(": ")[1].split(" (")[0] for line in found["faults"]] == [
        "sha256",
        str(made.set / "manifest.json"),
    ]


def test_layout_with_a_wrong_hash_is_not_read_by(copy: Path) -> None:
    path = copy / "layer.layout.toml"
    path.write_text(path.read_text().replace("k_proj.bias", "z_proj.bias"))
    result = verify_set(copy)
    assert result.elements == 0
    digest, refused = result.faults
    assert digest.startswith(f"{path}: sha256 (")
    assert refused == f"{path}: not what the manifest lists; no weight was read back"


@pytest.mark.parametrize("name", ["model.embed_tokens.weight.bfloat16.bin", LAYER])
@pytest.mark.parametrize("sealed", [False, True])
def test_file_with_too_few_weights_is_a_fault(copy: Path, name: str, sealed: bool) -> None:
    if name == LAYER:
        shutil.copyfile(copy / "qwen2_post.axmodel", copy / name)
    else:
        os.truncate(copy / name, (copy / name).stat().st_size - 1)
    if sealed:
        reseal(copy)
    faults = verify_set(copy).faults
    assert len(faults) == 2 - sealed
    assert all(fault.startswith(f"{copy / name}: ") for fault in faults)
    assert ": bytes of weights (expected " in faults[-1]


def test_file_that_cannot_be_read_hides_no_other_fault(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> str:
        if path.name == "config.json":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return file_sha256(path)

    monkeypatch.setattr(verify, "file_sha256", refused)
    flip(copy / LAYER, 1000)
    first, second = verify_set(copy).faults
    assert first == f"{copy / 'config.json'}: {os.strerror(errno.EACCES)}"
    assert second.startswith(f"{copy / LAYER}: sha256")


def test_command_exits_0_or_1_and_prints_json(tiny: Tiny, copy: Path) -> None:
    good = engineset("verify", tiny.set, "--json")
    assert good.returncode == 0
    assert json.loads(good.stdout)["ok"] is True
    flip(copy / LAYER, 1000)
    bad = engineset("verify", copy)
    assert bad.returncode == 1
    assert [line for line in bad.stderr.splitlines() if line.startswith("error: ")] == bad.stderr.splitlines()
    assert LAYER in bad.stderr
    assert json.loads(engineset("verify", copy, "--json").stdout)["ok"] is False


def test_command_on_no_set_is_one_line(tmp_path: Path) -> None:
    result = engineset("verify", tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines() == [f"error: {tmp_path}/manifest.json: not an engine set: it has no manifest"]
    assert json.loads(engineset("verify", tmp_path, "--json").stdout)["ok"] is False
