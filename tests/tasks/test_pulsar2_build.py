"""The real `luigi` command with the vendor's compiler in its place in the DAG."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.helpers.fake_pulsar2 import calls, write_fake
from tests.helpers.sets import Tiny, built, check_refusal, contents, engineset, make_tiny, write_config

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 300}


def with_compiler(folder: Path, version: str, mode: str = "", **flags: object) -> Tiny:
    tiny = make_tiny(folder, "qwen2", **SIZES)
    home = write_fake(folder / "home", version, mode=mode)
    write_config(tiny.config, "qwen2", toolchain="pulsar2", pulsar2=[str(home / "bin" / "pulsar2")], **flags)
    return tiny


@pytest.mark.parametrize(("version", "weight_type"), [("5.2", "bf16"), ("7.0", "s8")])
def test_set_of_templates_that_the_compiler_made(tmp_path: Path, version: str, weight_type: str) -> None:
    tiny = with_compiler(tmp_path, version, weight_type=weight_type)
    found = built(tiny)
    assert len(calls(tmp_path / "home")) > 3  # the template and every marker build
    template = json.loads((found / "manifest.json").read_text())["template"]
    assert (template["toolchain"], template["version"]) == ("pulsar2", version)
    done = engineset("verify", found)
    assert done.returncode == 0, done.stderr
    reference = make_tiny(tmp_path / "reference", "qwen2", **SIZES)
    write_config(reference.config, "qwen2", weight_type=weight_type)
    ours = contents(built(reference))
    engines = [name for name in ours if name.endswith((".axmodel", ".bin"))]
    assert {name: contents(found)[name] for name in engines} == {name: ours[name] for name in engines}


def test_another_version_has_other_names(tmp_path: Path) -> None:
    tiny = with_compiler(tmp_path, "5.2")
    first = built(tiny)
    write_fake(tmp_path / "home", "5.3")
    assert built(tiny) != first


def test_failure_of_the_compiler_is_one_line_and_leaves_no_template(tmp_path: Path) -> None:
    tiny = with_compiler(tmp_path, "5.2", mode="half")
    (tmp_path / "logs").mkdir()
    result = tiny.luigi(env=os.environ | {"TMPDIR": str(tmp_path / "logs")})
    builds = 4  # the template and the marker builds
    check_refusal(tiny, result, [r"pulsar2\.log: Pulsar2 failed: RuntimeError: tiling of layer 1 failed"] * builds)
    assert not list((tiny.build / "templates").glob("*"))
    assert len(list((tmp_path / "logs").glob("*/pulsar2.log"))) == builds


def test_no_compiler_is_one_line(tmp_path: Path) -> None:
    tiny = make_tiny(tmp_path, "qwen2", **SIZES)
    write_config(tiny.config, "qwen2", toolchain="pulsar2", pulsar2=[str(tmp_path / "none")])
    check_refusal(tiny, tiny.luigi(), [r"none: the compiler cannot be started: No such file or directory"])
