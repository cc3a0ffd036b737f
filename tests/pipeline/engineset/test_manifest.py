"""The manifest is sealed: not one byte of it can change unseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline.engineset import manifest as manifest_module
from pipeline.engineset.manifest import (
    AdapterEntry,
    FileEntry,
    Manifest,
    SourceEntry,
    TemplateEntry,
    encode_manifest,
    read_manifest,
    write_manifest,
)
from pipeline.engineset.names import EngineNames
from pipeline.errors import MissingFileError, VerifyError
from tests.helpers.tiny import tiny_config

MANIFEST = Manifest(
    format=3,
    name="tiny",
    identity="0123456789abcdef",
    tool="engineset 0.1.0",
    model=tiny_config("qwen3"),
    names=EngineNames("x_l%d.axmodel", "post.axmodel"),
    source=SourceEntry(
        "/a/ä/tiny.gguf",
        {"tiny.gguf": "ab" * 32},
        {"F32": 3, "Q8_0": 9},
        AdapterEntry("/a/ö.gguf", 0.5, {"ö.gguf": "cd" * 32}),
        "vocab_keep.json",
    ),
    template=TemplateEntry("reference", "7.0", {"prefill_len": 8}, {"x.axmodel": "cd" * 32}, {}),
    scales="search",
    tokenizer=[],
    engines={"x.axmodel": {"planned_bytes": 12, "tensors": {"w": {"max_error": 0.001953125}}}},
    files={"x.axmodel": FileEntry(1234, "ef" * 32)},
)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_manifest(tmp_path, MANIFEST)
    return tmp_path / "manifest.json"


def test_manifest_survives(written: Path) -> None:
    read = read_manifest(written.parent)
    assert msgspec.json.encode(read) == msgspec.json.encode(MANIFEST)
    assert read.model == tiny_config("qwen3")
    assert written.read_bytes() == encode_manifest(read)


def test_equal_manifests_have_equal_bytes(written: Path) -> None:
    other = msgspec.convert(msgspec.to_builtins(MANIFEST), Manifest)
    assert encode_manifest(other) == written.read_bytes()


def test_every_changed_byte_is_refused(written: Path) -> None:
    data = written.read_bytes()
    for at in range(len(data)):
        written.write_bytes(data[:at] + bytes([data[at] ^ (1 if at % 2 else 0x20)]) + data[at + 1 :])
        with pytest.raises(VerifyError):
            read_manifest(written.parent)


def test_every_cut_and_every_added_byte_is_refused(written: Path) -> None:
    data = written.read_bytes()
    for at in range(0, len(data), 13):
        for changed in (data[:at], data[:at] + b" " + data[at:], data[:at] + data[at + 1 :]):
            written.write_bytes(changed)
            with pytest.raises(VerifyError):
                read_manifest(written.parent)


def test_changed_values_under_the_old_seal_are_refused(written: Path) -> None:
    fields = json.loads(written.read_bytes())
    fields["files"]["x.axmodel"]["sha256"] = "00" * 32
    written.write_text(json.dumps(fields, indent=1, ensure_ascii=False) + "\n")
    with pytest.raises(VerifyError, match="changed since it was written"):
        read_manifest(written.parent)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a manifest"),
        (b"{}", "not a manifest"),
        (b"[1]", "not a manifest"),
        (b"\xff\xfe", "not a manifest"),
        (b"[" * 100_000, "not a manifest"),
        (b'{"format": "1"}', "not a manifest"),
    ],
)
def test_other_texts_are_no_manifest(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(VerifyError, match=reason):
        read_manifest(tmp_path)


@pytest.mark.parametrize("without", ["scales", "engines"])
def test_another_format_is_named_whatever_its_fields(tmp_path: Path, without: str) -> None:
    fields = msgspec.to_builtins(MANIFEST) | {"format": 1}
    del fields[without]
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(VerifyError, match=r"another format \(expected 3, found 1\)"):
        read_manifest(tmp_path)


def test_huge_manifest_is_not_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_module, "MAX_BYTES", 100)
    with pytest.raises(VerifyError, match="too large"):
        read_manifest(written.parent)


def test_directory_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"manifest\.json: not an engine set"):
        read_manifest(tmp_path)


def test_config_round_trip_keeps_everything() -> None:
    config = replace(tiny_config("qwen2"), eos_token_ids=(1, 2, 3), bos_token_id=None)
    made = msgspec.structs.replace(MANIFEST, model=config)
    assert msgspec.json.decode(encode_manifest(made), type=dict)["model"]["eos_token_ids"] == [1, 2, 3]
    assert made.model == config
