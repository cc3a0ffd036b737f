"""`engineset refit`, `verify` of one engine and `diff` as commands: what they print and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from layouts.sidecar import write_layout
from pipeline.cli.diff import diff
from pipeline.cli.refit import refit
from pipeline.cli.verify import verify
from pipeline.container.blob import weight_blob
from tests.helpers.engines import overwrite
from tests.helpers.networks import BYTES, WIDE, compiled, network_layout, random_weights, write_source


def call(command: click.Command, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(part) for part in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Engine `a` with its layout `l`, and the weights `a` and `b`."""
    engine = compiled(tmp_path / "a.axmodel", random_weights(1))
    write_layout(tmp_path / "l.layout.toml", network_layout(engine))
    write_source(tmp_path / "a.safetensors", random_weights(1))
    write_source(tmp_path / "b.safetensors", random_weights(2) | {"head": np.ones(2, np.float32)})
    return tmp_path


def refitted(folder: Path, *others: object) -> Result:
    source, output = folder / "b.safetensors", folder / "b.axmodel"
    return call(
        refit, folder / "a.axmodel", "--layout", folder / "l.layout.toml", "--checkpoint", source, "-o", output, *others
    )


def test_refit_says_what_it_did(folder: Path) -> None:
    with pytest.warns(UserWarning, match="no place for head: of these the engine keeps what it has"):
        result = refitted(folder)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split(maxsplit=1) == ["layout", str(folder / "l.layout.toml")]
    assert lines[1].split(maxsplit=1) == ["confirmed", "the engine is the layout's own but for its weights"]
    (wide,) = (line for line in lines if line.startswith("wide"))
    assert "30 absent" in wide
    fresh = compiled(folder / "fresh.axmodel", random_weights(2))
    assert (folder / "b.axmodel").read_bytes() == fresh.read_bytes()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_refit_as_json(folder: Path) -> None:
    found = json.loads(refitted(folder, "--json").stdout)
    assert found["unused"] == ["head"]
    assert found["report"]["tensors"]["wide"]["sources"] == ["wide", "wide_bias"]
    assert 0 < found["report"]["changed_bytes"] <= found["report"]["planned_bytes"]
    assert found["output"] == str(folder / "b.axmodel")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_verify_of_one_engine(folder: Path) -> None:
    refitted(folder)
    engine, layout = folder / "b.axmodel", ("--layout", folder / "l.layout.toml")
    good = call(verify, engine, *layout, "--checkpoint", folder / "b.safetensors")
    assert (good.exit_code, good.stdout) == (0, "150 weights compared, 0 faults\n")
    overwrite(engine, weight_blob(engine).offset + WIDE + 11, b"\0")
    bad = call(verify, engine, *layout, "--checkpoint", folder / "a.safetensors", "--template", folder / "a.axmodel")
    assert bad.exit_code == 1
    errors = [line for line in bad.stderr.splitlines() if line.startswith(f"error: {engine}: ")]
    named = ("wide[0, 5]", "narrow[0, 0]", "lstm[0, 0]", "lstm_bias[0, 0]", "byte")
    assert [line.removeprefix(f"error: {engine}: ").split(" ")[0].split("[")[0] for line in errors] == [
        name.split("[")[0] for name in named
    ]
    report = json.loads(call(verify, engine, *layout, "--checkpoint", folder / "a.safetensors", "--json").stdout)
    assert (report["ok"], len(report["faults"])) == (False, 5)


def test_one_engine_is_not_verified_without_weights(folder: Path) -> None:
    result = call(verify, folder / "a.axmodel")
    assert (result.exit_code, "--checkpoint" in result.stderr) == (2, True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_diff_ends_as_diff_does(folder: Path) -> None:
    refitted(folder)
    a, b, layout = folder / "a.axmodel", folder / "b.axmodel", ("--layout", folder / "l.layout.toml")
    same = call(diff, a, a, *layout)
    assert (same.exit_code, same.stdout) == (0, "5 of 5 weights and copies are equal\n")
    apart = call(diff, a, b, *layout)
    assert apart.exit_code == 1
    assert [line.split()[:2] for line in apart.stdout.splitlines()[1:]] == [
        ["wide", "only"],
        ["narrow", "decode"],
        ["narrow", "prefill"],
        ["lstm", "only"],
        ["lstm_bias", "only"],
    ]
    assert call(diff, a, folder / "nothing").exit_code == 2
    assert call(diff, a, folder).exit_code == 2
    truncated = folder / "short.axmodel"
    truncated.write_bytes(a.read_bytes()[:-1])
    assert call(diff, a, truncated, *layout).exit_code == 2
    assert "file: " in call(diff, a, truncated).stdout


def test_diff_lists_stray_bytes(folder: Path) -> None:
    a, b = folder / "a.axmodel", folder / "c.axmodel"
    b.write_bytes(a.read_bytes())
    start = weight_blob(a).offset
    for at in range(240, BYTES, 4):
        overwrite(b, start + at, bytes([a.read_bytes()[start + at] ^ 255]))
    result = call(diff, a, b, "--layout", folder / "l.layout.toml")
    lines = result.stdout.splitlines()
    (total,) = (line for line in lines if "bytes differ outside the weights, in " in line)
    count = int(total.split()[-2])
    assert f"  and {count - 20} more ranges, which --json lists" in lines
    found = json.loads(call(diff, a, b, "--layout", folder / "l.layout.toml", "--json").stdout)
    assert len(found["stray"]["ranges"]) == count
    bare = json.loads(call(diff, a, b, "--json").stdout)
    assert (bare["known_layout"], bare["tensors"]) == (None, [])
    assert sum(item["bytes"] for item in bare["stray"]["ranges"]) == len(range(240, BYTES, 4))
