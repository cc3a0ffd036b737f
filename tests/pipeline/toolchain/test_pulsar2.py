"""The driver of the vendor's compiler, against a program that behaves as documented, and does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.open import open_checkpoint
from pipeline.errors import MissingFileError, ToolchainError
from pipeline.toolchain import pulsar2, pulsar2_checks, streamed
from pipeline.toolchain.compilers import compile_published, find_compiler
from pipeline.toolchain.kinds import KINDS
from pipeline.toolchain.local_tool import INSTALLED, LocalTool
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.pulsar2_source import write_source
from pipeline.toolchain.reference import compile_model
from pipeline.toolchain.template_file import read_template
from pipeline.toolchain.templates import compile_directory
from tests.helpers.fake_pulsar2 import calls, write_fake
from tests.helpers.processes import is_gone
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config(
    "qwen3",
    hidden_size=64,
    intermediate_size=96,
    num_attention_heads=2,
    head_dim=32,
    vocab_size=300,
    num_hidden_layers=4,
)
WEIGHTS = NoiseCheckpoint(CONFIG, 5)
OPTIONS = CompileOptions(kv_cache_len=32, prefill_len=8)


@pytest.fixture(autouse=True)
def _own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept logs go where the test's files go, and no installation of the machine's is found."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "logs"))
    monkeypatch.delenv("PULSAR2_HOME", raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULSAR2_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def compile_into(output: Path, options: CompileOptions = OPTIONS, tool: LocalTool = INSTALLED) -> list[Path]:
    return find_compiler("pulsar2", tool).compile(WEIGHTS, output, options, KINDS)


def words_of(command: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in zip(command[1::2], command[2::2], strict=True):
        found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize(("version", "embedding"), [("5.2", True), ("7.0", False)])
def test_engines_are_those_of_the_compiler_under_our_names(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], version: str, embedding: bool
) -> None:
    write_fake(home, version, embedding=embedding)
    files = compile_into(tmp_path / "out")
    expected = compile_model(WEIGHTS, tmp_path / "reference", OPTIONS)
    assert {path.name: path.read_bytes() for path in files} == {p.name: p.read_bytes() for p in expected}
    assert "pulsar2: build qwen3_p8_l3_together.axmodel" in capfd.readouterr().err.splitlines()
    assert "build qwen3_p8_l3" in (tmp_path / "out" / "pulsar2.log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "logs", "out", "reference"]
    assert list((tmp_path / "logs").iterdir()) == []


def test_flags_are_the_documented_ones(home: Path, tmp_path: Path) -> None:
    write_fake(home, "5.2")
    compile_into(tmp_path / "first")
    write_fake(home, "7.0")
    compile_into(tmp_path / "second", CompileOptions("s8", 32, 8, (8, 16), post_weight_type="s8"))
    (first, second) = calls(home)
    assert (first[0], second[0]) == ("llm_build", "llm_build2")
    assert words_of(first)["--last_kv_cache_len"] == ["8", "16", "24"]
    assert words_of(first)["--kv_cache_len"] == ["32"]
    assert [words_of(second)[f"--{name}"] for name in ("max_context", "prefill_len", "prefill_step_size")] == [
        ["33"],
        ["24"],
        ["8"],
    ]
    assert (words_of(second)["-w"], words_of(second)["--post_weight_type"]) == (["s8"], ["s8"])


def test_ladder_with_gaps_has_no_flag_in_the_second_command(home: Path, tmp_path: Path) -> None:
    write_fake(home, "7.0")
    with pytest.raises(ToolchainError, match="every step of the ladder"):
        compile_into(tmp_path / "out", CompileOptions(kv_cache_len=32, prefill_len=8, last_kv_cache_len=(16,)))
    assert calls(home) == []


def test_version_goes_into_the_description(home: Path, tmp_path: Path) -> None:
    write_fake(home, "6.1-patch3")
    source = tmp_path / "source"
    write_source(source, WEIGHTS)
    compile_published("pulsar2", open_checkpoint(source), tmp_path / "out", OPTIONS)
    template = read_template(tmp_path / "out")
    assert (template.toolchain, template.version) == ("pulsar2", "6.1-patch3")
    assert words_of(calls(home)[0])["--input_path"] == [str(source)]  # the user's own directory, no copy


def test_container_command_is_told_both_directories(tmp_path: Path) -> None:
    program = write_fake(tmp_path / "home") / "bin" / "pulsar2"
    script = tmp_path / "container"
    script.write_text(
        f'#!/bin/sh\ntest "$1" = run && test -d "${{3%%:*}}" && test -d "${{5%%:*}}" || exit 9\nshift 6\nexec {program} "$@"\n'
    )
    script.chmod(0o755)
    words = (str(script), "run", "-v", "{input}:{input}", "-v", "{output}:{output}", "image")
    compile_into(tmp_path / "out", tool=LocalTool(words))
    given = words_of(calls(tmp_path / "home")[0])
    assert Path(given["--output_path"][0]).parent.parent == Path(given["--input_path"][0]).parent


MISBEHAVIOUR = {
    "longer": r"but: other calls than were asked for: .*expected \[\(1, 32\), \(8, 0\).*found \[\(1, 33\), \(8, 0\)",
    "nothing": r"Pulsar2 ended without an error, but: engines are missing .*\(expected 4 layers, found 0\)",
    "half": r"Pulsar2 failed: RuntimeError: tiling of layer 1 failed \(found exit status 1\)",
    "killed": r"Pulsar2 was killed, as happens where memory runs out \(found signal 9\)",
    "truncated": r"qwen3_text_p8_l3_together\.axmodel: Pulsar2 ended without an error, but: not a whole engine",
    "empty": r"qwen3_text_p8_l3_together\.axmodel: Pulsar2 ended without an error, but: not a whole engine",
    "extra": r"_l0_together\.axmodel: Pulsar2 ended without an error, but: an engine too many",
}


@pytest.mark.parametrize("mode", MISBEHAVIOUR)
def test_misbehaviour_leaves_nothing_but_the_log(home: Path, tmp_path: Path, mode: str) -> None:
    write_fake(home, mode=mode)
    with pytest.raises(ToolchainError) as caught:
        compile_directory("pulsar2", WEIGHTS, OPTIONS, tmp_path / "out", 5)
    line = str(caught.value)
    assert re.search(MISBEHAVIOUR[mode], line), line
    (log,) = (tmp_path / "logs").glob("*/pulsar2.log")
    assert str(log) in line
    assert "model_name='tiny'" in log.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "logs"]


def test_hang_is_ended_with_its_children(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "GRACE_SECONDS", 0.2)
    write_fake(home, mode="hang")
    with pytest.raises(ToolchainError, match=r"did not end in time and was ended \(expected at most .* h\)"):
        compile_into(tmp_path / "out", tool=LocalTool(hours=2 / 3600))
    pids = [int(word) for word in (home / "pids").read_text().split()]
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert list((tmp_path / "out").iterdir()) == []


def test_garbage_on_the_way_does_not_reach_the_terminal(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_fake(home, mode="garbage")
    assert len(compile_into(tmp_path / "out")) == 6
    shown = capfd.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert b"\x1b[2J" in (tmp_path / "out" / "pulsar2.log").read_bytes()


NO_VERSION: dict[str, tuple[dict[str, Any], str]] = {
    "refuses": ({"answer": "license expired", "version_status": 3}, r"license expired \(exit status 3\)"),
    "another answer": ({"answer": "7.0\x1b[2J"}, r"expected version: X\.Y, found 7\.0\?\[2J"),
    "silent": ({"answer": ""}, "nothing"),
}


@pytest.mark.parametrize("case", NO_VERSION)
def test_program_that_does_not_say_its_version(home: Path, tmp_path: Path, case: str) -> None:
    behaviour, reason = NO_VERSION[case]
    write_fake(home, **behaviour)
    with pytest.raises(ToolchainError, match=reason):
        compile_into(tmp_path / "out")


@pytest.mark.parametrize("version", ["1.9", "3.3"])
def test_old_versions_are_refused(home: Path, tmp_path: Path, version: str) -> None:
    write_fake(home, version)
    with pytest.raises(ToolchainError, match=rf"version: this Pulsar2 is too old .*4\.0 or later, found {version}"):
        compile_into(tmp_path / "out")
    assert calls(home) == []


def test_flags_that_it_refuses(home: Path, tmp_path: Path) -> None:
    """A version that says 7 and lacks the second command."""
    write_fake(home, "5.0", answer="version: 7.5")
    with pytest.raises(ToolchainError, match=r"invalid choice: 'llm_build2'.*exit status 2"):
        compile_into(tmp_path / "out")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match=r"PULSAR2_HOME, or the command in templates\.pulsar2"):
        compile_into(tmp_path / "out")
    with pytest.raises(ToolchainError, match="cannot be started: No such file"):
        compile_into(tmp_path / "out", tool=LocalTool((str(tmp_path / "none"),)))
    monkeypatch.setenv("PULSAR2_HOME", str(tmp_path))
    with pytest.raises(MissingFileError, match=r"PULSAR2_HOME has no compiler .*bin/pulsar2 or pulsar2"):
        compile_into(tmp_path / "out")


REFUSED = {
    "layout seed": (
        CompileOptions(kv_cache_len=32, prefill_len=8, layout_seed=3),
        r"layout_seed: no flag .*expected 0",
    ),
    "folding": (CompileOptions("s8", 32, 8, fold_norms=True), "fold_norms: no flag of Pulsar2's"),
    "fp32": (CompileOptions("fp32", 32, 8), "weight_type: Pulsar2 does not compile it"),
    "s4 head": (CompileOptions("s8", 32, 8, post_weight_type="s4"), "post_weight_type: Pulsar2 does not compile it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_flags_that_it_has_not(home: Path, tmp_path: Path, case: str) -> None:
    write_fake(home)
    options, reason = REFUSED[case]
    with pytest.raises(ToolchainError, match=reason):
        compile_into(tmp_path / "out", options)
    assert calls(home) == []


def test_memory_and_disk_are_asked_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_fake(home)
    need = pulsar2_checks.memory_need(CONFIG, 1)
    monkeypatch.setattr(pulsar2_checks, "memory", lambda: {"MemAvailable": need - 1})
    with pytest.raises(ToolchainError, match=r"memory: not enough memory.*expected 1\.0 GiB available"):
        compile_into(tmp_path / "out")
    monkeypatch.setattr(pulsar2_checks, "memory", lambda: {"MemAvailable": need})
    monkeypatch.setattr(pulsar2_checks, "cores", lambda: 4)
    assert pulsar2_checks.choose_parallel(CONFIG) == 1
    monkeypatch.setattr(pulsar2_checks, "memory", dict)
    assert pulsar2_checks.choose_parallel(CONFIG) == 4
    monkeypatch.setattr(pulsar2_checks, "_DISK_COPIES", 1 << 50)
    with pytest.raises(ToolchainError, match="not enough disk space"):
        compile_into(tmp_path / "out")
    assert calls(home) == []


def test_output_in_the_way(home: Path, tmp_path: Path) -> None:
    write_fake(home)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(ToolchainError, match="not an empty directory"):
        compile_into(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_directory_that_a_container_made_as_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").write_bytes(b"engine")

    def refuse(*_: object) -> Path:
        raise PermissionError

    monkeypatch.setattr(Path, "replace", refuse)
    assert pulsar2._take(tmp_path / "theirs", tmp_path / "ours").read_bytes() == b"engine"
