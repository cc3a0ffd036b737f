"""Bad input through the real `luigi` command: one line that names file, tensor and both sides; no set, nothing half-written."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.helpers.engines import overwrite
from tests.helpers.sets import BIN, Tiny, build_tiny, check_refusal, make_tiny, run, write_config

UP = "blk.1.ffn_up.weight"


def tensor_offset(path: Path, name: str) -> int:
    """Byte at which a tensor's data begins."""
    (tensor,) = (item for item in gguf.GGUFReader(path).tensors if item.name == name)
    return int(tensor.data_offset)


def missing_gguf(tiny: Tiny) -> list[str]:
    tiny.gguf.unlink()
    return [r"tiny\.gguf: no such source"]


def missing_config(tiny: Tiny) -> list[str]:
    tiny.config.unlink()
    return [r"tiny\.toml: no such config"]


def unknown_key(tiny: Tiny) -> list[str]:
    tiny.config.write_text(tiny.config.read_text() + "kv_cache_length = 5\n")
    return [r"tiny\.toml: .*unknown field `kv_cache_length`.*templates"]


def not_toml(tiny: Tiny) -> list[str]:
    tiny.config.write_text("name = = 5\n")
    return [r"tiny\.toml: "]


def wrong_type(tiny: Tiny) -> list[str]:
    write_config(tiny.config, "qwen2", kv_cache_len="many")
    return [r"tiny\.toml: .*kv_cache_len"]


def refused_flag(tiny: Tiny) -> list[str]:
    write_config(tiny.config, "qwen2", weight_type="s5")
    return [r"tiny\.toml: templates\.weight_type: .*expected bf16 or fp32 or s8 or s4, found s5"]


def absent_package(tiny: Tiny) -> list[str]:
    text = tiny.config.read_text().replace('path = "tiny.gguf"', 'package = "no-such-thing==1.0"\nfile = "x.gguf"')
    tiny.config.write_text(text)
    return [r"no-such-thing: the package is not installed: pip install no-such-thing==1\.0"]


def wrong_architecture(tiny: Tiny) -> list[str]:
    write_config(tiny.config, "llama")
    return [r"tiny\.gguf: architecture: .*expected llama, found qwen2"]


def unknown_architecture(tiny: Tiny) -> list[str]:
    data = tiny.gguf.read_bytes()
    tiny.gguf.write_bytes(data.replace(b"qwen2", b"qwenX"))
    return [r"tiny\.gguf: .*qwenX"]


def truncated(tiny: Tiny) -> list[str]:
    data = tiny.gguf.read_bytes()
    tiny.gguf.write_bytes(data[:-7])
    return [r"tiny\.gguf: .*expected .*found"]


def truncated_header(tiny: Tiny) -> list[str]:
    tiny.gguf.write_bytes(tiny.gguf.read_bytes()[:300])
    return [r"tiny\.gguf: "]


def not_a_gguf(tiny: Tiny) -> list[str]:
    tiny.gguf.write_bytes(b"PK\3\4" + bytes(1000))
    return [r"tiny\.gguf: "]


def nan(tiny: Tiny) -> list[str]:
    overwrite(tiny.gguf, tensor_offset(tiny.gguf, UP) + 4 * (320 * 17 + 5), struct.pack("<f", np.nan))
    return [r"tiny\.gguf: blk\.1\.ffn_up\.weight: byte \d+: NaN in element 5445, row 17$"]


def infinity_in_the_embedding(tiny: Tiny) -> list[str]:
    at = tensor_offset(tiny.gguf, "token_embd.weight") + 4 * (320 * 999 + 319)
    overwrite(tiny.gguf, at, struct.pack("<f", -np.inf))
    return [r"tiny\.gguf: token_embd\.weight: byte \d+: an infinity in element 319999, row 999$"]


def too_large_for_bf16(tiny: Tiny) -> list[str]:
    at = tensor_offset(tiny.gguf, UP)
    overwrite(tiny.gguf, at, struct.pack("<f", np.finfo(np.float32).max))
    return [r"tiny\.gguf: blk\.1\.ffn_up\.weight: .*3\.40"]


FAULTS: list[Callable[[Tiny], list[str]]] = [
    missing_gguf,
    missing_config,
    unknown_key,
    not_toml,
    wrong_type,
    refused_flag,
    absent_package,
    wrong_architecture,
    unknown_architecture,
    truncated,
    truncated_header,
    not_a_gguf,
    nan,
    infinity_in_the_embedding,
    too_large_for_bf16,
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A built set, whose templates and layouts later builds may use."""
    return build_tiny(tmp_path_factory.mktemp("whole"))


def warmed(folder: Path, whole: Tiny) -> Tiny:
    """A source of its own, with the templates and layouts of the built set."""
    tiny = make_tiny(folder)
    shutil.copytree(whole.build, tiny.build, ignore=shutil.ignore_patterns("sets", "parts"))
    return tiny


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda fault: fault.__name__)
def test_fault_is_one_line(tmp_path: Path, whole: Tiny, spoil: Callable[[Tiny], list[str]]) -> None:
    tiny = warmed(tmp_path, whole)
    reasons = spoil(tiny)
    check_refusal(tiny, tiny.luigi(), reasons)


def test_fault_is_one_line_with_two_workers(tmp_path: Path, whole: Tiny) -> None:
    tiny = warmed(tmp_path, whole)
    reasons = nan(tiny)
    check_refusal(tiny, tiny.luigi("--workers", 2), reasons)


def test_mended_source_builds_what_an_undisturbed_build_does(tmp_path: Path, whole: Tiny) -> None:
    tiny = warmed(tmp_path, whole)
    good = tiny.gguf.read_bytes()
    nan(tiny)
    assert tiny.luigi().returncode != 0
    tiny.gguf.write_bytes(good)
    assert tiny.luigi().returncode == 0
    for path in whole.set.glob("*.axmodel"):
        assert (tiny.set / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("content", ['{"sha', "[]", '{"sha256": 1}', "{}", "\xff"])
def test_damaged_report_of_a_part_is_one_line_and_made_again(tmp_path: Path, whole: Tiny, content: str) -> None:
    """Of a build that was killed; a patch on its own leaves the same."""
    tiny = warmed(tmp_path, whole)
    flags = ("--layer", 0, "--config", tiny.config, "--build-dir", tiny.build)
    assert run([BIN / "luigi", "--module", "tasks", "PatchLayer", *flags]).returncode == 0
    (report,) = tiny.build.glob("parts/*/*_l0_together.axmodel.json")
    report.write_text(content, encoding="latin-1")
    result = tiny.luigi()
    assert f"damaged, made again: {report}: not the report of an engine" in result.stderr
    assert "Traceback" not in result.stderr


def test_scale_of_an_adapter_that_is_no_number(tmp_path: Path, whole: Tiny) -> None:
    tiny = warmed(tmp_path, whole)
    result = tiny.luigi("--lora", "adapter", "--lora-scale", "half")
    assert result.returncode == 2
    assert result.stderr == "error: --lora-scale: not a number (found half)\n"


def test_scale_of_an_adapter_that_is_not_given(tmp_path: Path, whole: Tiny) -> None:
    tiny = warmed(tmp_path, whole)
    check_refusal(tiny, tiny.luigi("--lora-scale", "0.5"), [r"--lora-scale: .*--lora \(found 0\.5\)"])


def test_old_set_survives_a_failed_build(tmp_path: Path, whole: Tiny) -> None:
    tiny = warmed(tmp_path, whole)
    assert tiny.luigi().returncode == 0
    before = {path.name: path.read_bytes() for path in tiny.set.iterdir()}
    reasons = nan(tiny)
    result = tiny.luigi()
    assert result.returncode != 0
    assert re.search(reasons[0], result.stderr, re.MULTILINE)
    assert {path.name: path.read_bytes() for path in tiny.set.iterdir()} == before


def test_build_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path)
    tiny.build.write_text("in the way")
    result = tiny.luigi()
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert [line for line in result.stderr.splitlines() if line.startswith("error: ") and str(tiny.build) in line]
    assert tiny.build.read_text() == "in the way"
