"""`markers make`, a compiler that is run by hand, `decode --markers`: the layouts of the integrated build."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.axmodel.walk import walk_engine
from tests.helpers.engines import overwrite_microcode
from tests.helpers.integer_sets import S4, S8, make_set, small_config
from tests.helpers.sets import Tiny, built, engineset

LAYOUTS = ("layer.layout.toml", "post.layout.toml", "embedding.layout.toml")
Made = tuple[Tiny, dict[str, Any], Path]
TWO_GROUPS = {"hidden_size": 257}  # of one group only, rules by row and by group are the same
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("llama", TWO_GROUPS, S8 | {"layout_seed": 2}),
    ("gemma3", TWO_GROUPS, {"weight_type": "s8", "layout_seed": 5, "scale_rule": "group/127", "fold_norms": True}),
    ("qwen2", {}, S4 | {"layout_seed": 3}),
    ("qwen3", {}, {"weight_type": "fp32", "layout_seed": 1}),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[2]['weight_type']}")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A config that is not built, its flags, and compiled marker builds."""
    arch, sizes, flags = request.param
    tiny = make_set(tmp_path_factory.mktemp("markers"), small_config(arch, **sizes), 1, **flags)
    markers = tiny.folder / "markers"
    done = engineset("markers", "make", "--config", tiny.config, "-o", markers)
    assert done.returncode == 0, done.stderr
    for build in json.loads((markers / "markers.json").read_text())["builds"]:
        compile_build(markers, build["command"], flags)
    return tiny, flags, markers


def compile_build(markers: Path, command: str, flags: dict[str, Any]) -> None:
    """The vendor's command with the reference compiler in its place, which has flags that the vendor's lacks."""
    words = [word for word in shlex.split(command) if "=" not in word]
    assert words[0] == "pulsar2" and words[1].startswith("llm_build")
    given = dict(zip(words[2::2], words[3::2], strict=True))
    if words[1] == "llm_build2":
        given["--kv_cache_len"] = str(int(given.pop("--max_context")) - 1)
        given["--prefill_len"] = given.pop("--prefill_step_size")
    given.pop("--last_kv_cache_len", None)  # all that fit, as is the default
    for name in ("--input_path", "--output_path"):
        given[name] = str(markers / given[name])
    arguments = [word for pair in given.items() for word in pair]
    arguments += ["--layout-seed", str(flags["layout_seed"])]
    arguments += [word for key in ("scale_rule", "scale_type") if key in flags for word in (f"--{key}", flags[key])]
    arguments += ["--fold_norms"] if flags.get("fold_norms") else []
    done = engineset("llm-build", *arguments)
    assert done.returncode == 0, done.stderr


def test_layouts_are_those_of_the_integrated_build(made: Made, tmp_path: Path) -> None:
    tiny, flags, markers = made
    done = engineset("decode", "--markers", markers, "-o", tmp_path / "layouts", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "layouts").iterdir()) == sorted(LAYOUTS)
    built(tiny)
    for name in LAYOUTS:
        assert (tmp_path / "layouts" / name).read_text() == (tiny.set / name).read_text()
    layer = json.loads(done.stdout)[0]
    gate = next(tensor for tensor in layer["tensors"] if tensor["name"] == "mlp.gate_proj.weight")
    assert gate["codec"] == flags["weight_type"]
    assert bool(gate["folded"]) == flags.get("fold_norms", False)
    if flags["weight_type"] == "s8":
        assert layer["builds"] <= 8
        assert gate["rule"] == flags.get("scale_rule", "row/127")
        assert sum(tensor["corrected"] for tensor in layer["tensors"]) > 0


def decoded(markers: Path, output: Path) -> dict[str, str] | None:
    """Texts of the layouts, None for a refusal of one line that leaves nothing."""
    done = engineset("decode", "--markers", markers, "-o", output)
    if done.returncode:
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
        assert not output.exists()
        return None
    return {name: (output / name).read_text() for name in LAYOUTS}


def test_microcode_is_not_read(made: Made, tmp_path: Path) -> None:
    markers = Path(shutil.copytree(made[2], tmp_path / "markers"))
    for path in markers.glob("*/engines/*.axmodel"):
        overwrite_microcode(path, seed=5)
    assert decoded(markers, tmp_path / "a") == decoded(made[2], tmp_path / "b") is not None


def test_a_flipped_bit_never_gives_another_layout(made: Made, tmp_path: Path) -> None:
    """Of any build and engine: it is refused or does not matter."""
    markers, random = Path(shutil.copytree(made[2], tmp_path / "markers")), np.random.default_rng(4)
    intact = decoded(markers, tmp_path / "intact")
    refused = 0
    for trial in range(6):
        paths = sorted(markers.glob("*/engines/*_together.axmodel"))
        path = paths[int(random.integers(len(paths)))]
        blob, data = walk_engine(path).weights, path.read_bytes()
        spoilt = bytearray(data)
        spoilt[blob.offset + int(random.integers(blob.size))] ^= 1 << int(random.integers(8))
        path.write_bytes(spoilt)
        found = decoded(markers, tmp_path / str(trial))
        assert found in (None, intact)
        refused += found is None
        path.write_bytes(data)
    assert refused > 0


def test_plain_text_names_every_tensor(made: Made, tmp_path: Path) -> None:
    done = engineset("decode", "--markers", made[2], "-o", tmp_path / "layouts")
    assert done.returncode == 0, done.stderr
    for name in ("self_attn.q_proj.weight", "lm_head.weight", "model.embed_tokens.weight", *LAYOUTS):
        assert name in done.stdout


def drop_build(markers: Path) -> None:
    shutil.rmtree(markers / "build-1" / "engines")


def add_build(markers: Path) -> None:
    (markers / "build-9").mkdir()


def drop_engine(markers: Path) -> None:
    next((markers / "confirm" / "engines").glob("*_post.axmodel")).unlink()


def swap_builds(markers: Path) -> None:
    first, second, aside = (markers / name / "engines" for name in ("build-0", "build-1", "confirm"))
    first.rename(aside.with_name("aside"))
    second.rename(first)
    aside.with_name("aside").rename(second)


def change_checkpoint(markers: Path) -> None:
    with (markers / "build-0" / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x5a")


def other_engine(markers: Path) -> None:
    (layer,) = (markers / "build-0" / "engines").glob("*_l0_together.axmodel")
    (post,) = (markers / "build-0" / "engines").glob("*_post.axmodel")
    layer.write_bytes(post.read_bytes())


def spoil_list(markers: Path) -> None:
    (markers / "markers.json").write_text("{}")


@pytest.mark.parametrize(
    "spoil", [drop_build, add_build, drop_engine, swap_builds, change_checkpoint, other_engine, spoil_list]
)
def test_what_is_not_as_it_was_made_is_one_line(made: Made, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    markers = Path(shutil.copytree(made[2], tmp_path / "markers"))
    spoil(markers)
    done = engineset("decode", "--markers", markers, "-o", tmp_path / "layouts")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {markers}/")
    assert [path.name for path in tmp_path.iterdir()] == ["markers"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["markers", "make", "-o", "x"],
        ["markers", "make", "--config", "a", "--input_path", "b", "-o", "x"],
        ["markers", "make", "--config", "a", "-w", "s8", "-o", "x"],
        ["decode", "-o", "x"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    done = engineset(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_console_script_has_the_commands() -> None:
    done = engineset("--help")
    assert {"markers", "decode", "locate"} <= set(done.stdout.split())
