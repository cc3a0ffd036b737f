"""What strangers write: the command line, requests that nest or never end, configurations that look elsewhere."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline.native import Runner, runner_path
from tests.helpers.fake_runtime import fake_runtime, run_fake, write_fake_set, write_options

DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture
def fake_set(tmp_path: Path) -> Path:
    return write_fake_set(tmp_path / "set")


@pytest.mark.parametrize(
    "request_line",
    [
        f'{{"op":{DEEP}}}',
        f'{{"op":"generate","tokens":[1,{DEEP}]}}',
        DEEP,
        '{"a":' * 200_000,
        json.dumps({"op": "x" * 8_000_000}),
        json.dumps({"x" * 8_000_000: 1, "op": "generate"}),
        json.dumps({"op": "generate", "tokens": {"a": list(range(1000))}}),
        json.dumps({"op": "generate", "tokens": [[7] * 1000]}),
    ],
    ids=["op", "tokens", "list", "open", "long-op", "long-key", "object", "inner-list"],
)
def test_input_request_of_any_depth_and_length_gets_a_short_answer(
    fake_set: Path, tmp_path: Path, request_line: str
) -> None:
    ran = run_fake(fake_set, tmp_path, "--serve", stdin=request_line + '\n{"op":"dance"}\n')
    assert (ran.code, ran.err, len(ran.out)) == (0, [], 2)
    assert list(json.loads(ran.out[0])) == ["error"] and len(ran.out[0]) < 200
    assert ran.out[1] == '{"error":"op: expected generate, score or report, found \\"dance\\""}'


def test_input_nesting_that_is_allowed_is_only_wrong(fake_set: Path, tmp_path: Path) -> None:
    ran = run_fake(fake_set, tmp_path, "--serve", stdin='{"op":' + "[" * 31 + "]" * 31 + "}\n")
    assert ran.out == ['{"error":"op: expected generate, score or report, found a list"}']


@pytest.mark.parametrize("field", ["axmodel_num", "filename_post_axmodel", "eos_token_id", "another"])
def test_input_config_that_nests(fake_set: Path, tmp_path: Path, field: str) -> None:
    config = json.loads((fake_set / "config.json").read_text())
    text = json.dumps(config | {field: "HERE"}).replace('"HERE"', DEEP)
    (fake_set / "config.json").write_text(text)
    ran = run_fake(fake_set, tmp_path, "--tokens", "1")
    assert (ran.code, ran.err, ran.calls) == (1, [f"{fake_set}/config.json: JSON nests deeper than 32"], [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokens", ""],
        ["--tokens", "1,,2"],
        ["--tokens", "1,2,"],
        ["--tokens", ",1"],
        ["--tokens", "0x10"],
        ["--tokens", "1 2"],
        ["--tokens", "1.0"],
        ["--tokens", "99999999999999999999"],
        *[
            ["--tokens", "1", option, value]
            for option in ("--max-tokens", "--seed", "--top-k")
            for value in ("-1", "", "1.5", "0x1", "18446744073709551616", "1e3")
        ],
        *[["--tokens", "1", option, "warm"] for option in ("--temperature", "--top-p")],
        ["--tokens", "1", "--device", "x"],
        ["--tokens", "1", "--connect-timeout", "-1"],
        ["--tokens", "1", "--teardown-limit", "0"],
        *[["--serve", "--temperature", "1"], ["--serve", "--no-prefill"], ["--serve", "--max-tokens", "1"]],
        ["--serve", "--json"],
    ],
    ids="=".join,
)
def test_input_command_line_is_refused(fake_set: Path, tmp_path: Path, arguments: list[str]) -> None:
    ran = run_fake(fake_set, tmp_path, *arguments)
    assert (ran.code, ran.out, ran.calls) == (2, [], [])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--temperature", "nan"], "temperature: expected a finite number from 0, found nan"),
        (["--temperature", "-0.5"], "temperature: expected a finite number from 0, found -0.5"),
        (["--top-p", "inf"], "top_p: expected above 0 and at most 1, found inf"),
    ],
)
def test_input_sampling_is_checked_as_a_request(
    fake_set: Path, tmp_path: Path, arguments: list[str], line: str
) -> None:
    ran = run_fake(fake_set, tmp_path, "--tokens", "1", *arguments)
    assert (ran.code, ran.err, ran.calls) == (1, [line], [])


def test_input_numbers_are_decimal_and_the_set_may_follow(fake_set: Path, tmp_path: Path) -> None:
    environment, _ = write_options(tmp_path)
    options = ["--lib", fake_runtime(), "--connect-timeout", "0.5", "--max-tokens", "010", "--ignore-eos"]
    command = [runner_path(), *options, "--tokens", "010,011", fake_set]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(token) for token in range(12, 22)])


def test_input_directory_that_looks_like_an_option(
    fake_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_set.rename(tmp_path / "--serve")
    monkeypatch.chdir(tmp_path)
    with Runner(Path("--serve"), fake_runtime(), write_options(tmp_path)[0]) as runner:
        assert list(runner.generate([20], max_tokens=1)) == [21]


@pytest.mark.parametrize(
    ("field", "file"),
    [
        ("filename_post_axmodel", "m_post.axmodel"),
        ("filename_tokens_embed", "embed.bin"),
        ("template_filename_axmodel", "m_l%d_together.axmodel"),
        ("post_config_path", "sampling.json"),
    ],
)
@pytest.mark.parametrize("way", ["absolute", "parent", "inner-parent"])
def test_input_config_that_names_files_outside(tmp_path: Path, field: str, file: str, way: str) -> None:
    other = write_fake_set(tmp_path / "other")
    (other / "sampling.json").write_text("{}")
    name = {"absolute": f"{other}/{file}", "parent": f"../other/{file}", "inner-parent": f"a/../../other/{file}"}[way]
    engine_set = write_fake_set(tmp_path / "set", config={field: name})
    ran = run_fake(engine_set, tmp_path, "--tokens", "1")
    assert (ran.code, len(ran.err), ran.calls) == (1, 1, [])
    assert f"expected a file inside {engine_set}, found " in ran.err[0]


@pytest.mark.parametrize(
    "file", ["config.json", "m_post.axmodel", "m_l2_together.axmodel", "embed.bin", "post_config.json"]
)
def test_input_link_that_leads_outside(fake_set: Path, tmp_path: Path, file: str) -> None:
    other = write_fake_set(tmp_path / "other")
    (other / "post_config.json").write_text("{}")
    (fake_set / file).unlink(missing_ok=True)
    (fake_set / file).symlink_to(other / file)
    ran = run_fake(fake_set, tmp_path, "--tokens", "1")
    assert (ran.code, len(ran.err), ran.calls) == (1, 1, [])
    assert f"{fake_set}/{file}: expected a file inside {fake_set}, found a link to {other}/{file}" in ran.err[0]


def test_input_links_inside_and_to_the_set_are_followed(fake_set: Path, tmp_path: Path) -> None:
    (fake_set / "part").mkdir()
    shutil.move(fake_set / "m_post.axmodel", fake_set / "part" / "head")
    (fake_set / "m_post.axmodel").symlink_to("part/head")
    (tmp_path / "link").symlink_to(fake_set)
    ran = run_fake(tmp_path / "link", tmp_path, "--tokens", "20", "--max-tokens", "1")
    assert (ran.code, ran.out) == (0, ["21"])
