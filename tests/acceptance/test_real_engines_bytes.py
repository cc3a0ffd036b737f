"""Public engines against plain NumPy that knows no layout: every stored number, before and after other weights went in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

from layouts.marking import mark_tensor
from layouts.sidecar import read_layout
from layouts.stored import EngineLayout, StoredTensor
from tests.helpers.containers import save
from tests.helpers.generations import BUILDS
from tests.helpers.real_engines import other_silero_weights, silero_engine, silero_weights
from tests.helpers.sets import ROOT, engineset
from tests.helpers.silero_bytes import BLOB, Bytes, Constants, engine_fields, own_bits, write_fields

CHIPS = ("ax650", "ax630c")
FIRST = 478
"""Where the weights begin in both files."""
KNOWN = ROOT / "layouts" / "known"

Arrays = dict[str, npt.NDArray[np.float32]]


@cache
def weights(path: Path) -> Arrays:
    return {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}


def known(chip: str) -> Path:
    return KNOWN / f"silero-vad-16k-{chip}.layout.toml"


def constants(layout: EngineLayout) -> dict[str, Constants]:
    return {
        stored.name: Constants(stored.scales.factor, stored.bias.factor, stored.bias.zero_point)
        for stored in layout.tensors
        if stored.scales is not None and stored.bias is not None
    }


def blob_of(engine: Path, chip: str) -> Bytes:
    return np.frombuffer(engine.read_bytes(), np.uint8)[FIRST : FIRST + BLOB[chip]]


def expected(chip: str, arrays: Arrays) -> bytes:
    """The engine file of other weights: only the fields that the facts name are different."""
    data, given = silero_engine(chip).read_bytes(), constants(read_layout(known(chip)))
    blob = write_fields(blob_of(silero_engine(chip), chip), engine_fields(chip, arrays, given))
    return data[:FIRST] + blob.tobytes() + data[FIRST + blob.size :]


def perturbed(path: Path, seed: int) -> Path:
    """Every weight moved by up to a tenth, in a file of another kind; one row of a convolution is zeros."""
    noise, found = np.random.default_rng(seed), {}
    for name, array in weights(silero_weights()).items():
        if name.startswith("model.") and array.ndim:
            found[name] = (array * (1 + noise.uniform(-0.1, 0.1, array.shape))).astype(np.float32)
    found["model.encoder.1.reparam_conv.weight"][7] = 0
    found["model.encoder.1.reparam_conv.bias"][7] = 0
    save_file(found, path)
    return path


@pytest.mark.parametrize("chip", CHIPS)
def test_facts_predict_the_vendors_bytes_and_the_layout_owns_those_bits(chip: str) -> None:
    layout, own = read_layout(known(chip)), weights(silero_weights())
    assert expected(chip, own) == silero_engine(chip).read_bytes()
    owned = np.zeros(BLOB[chip], np.uint8)
    for stored in layout.tensors:
        mark_tensor(owned, stored, 0)
    assert np.array_equal(owned, own_bits(chip, own, constants(layout)))
    assert np.count_nonzero(owned) > 0.96 * owned.size


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("which", ["own", "perturbed", "6.0.0"])
def test_refitted_file_is_what_the_facts_say(chip: str, which: str, tmp_path: Path) -> None:
    engine, new, back = silero_engine(chip), tmp_path / "new.axmodel", tmp_path / "back.axmodel"
    others = {"own": silero_weights, "6.0.0": other_silero_weights}
    source = others[which]() if which in others else perturbed(tmp_path / "w.safetensors", 3)
    arrays = weights(source) if which in others else load_file(source)
    done = engineset("refit", engine, "--checkpoint", source, "-o", new)
    assert done.returncode == 0, done.stderr
    assert new.read_bytes() == expected(chip, arrays)
    verified = engineset("verify", new, "--checkpoint", source, "--template", engine)
    assert verified.returncode == 0, verified.stderr
    compared = engineset("diff", engine, new, "--json")
    assert compared.returncode == (0 if which == "own" else 1), compared.stderr
    assert json.loads(compared.stdout)["stray"] == {"ranges": [], "sizes": []}
    assert engineset("refit", new, "--checkpoint", silero_weights(), "-o", back).returncode == 0
    assert back.read_bytes() == engine.read_bytes()


@pytest.mark.parametrize("chip", CHIPS)
def test_perturbed_engine_decodes_to_the_same_layout(chip: str, tmp_path: Path) -> None:
    source, new, again = perturbed(tmp_path / "w.safetensors", 4), tmp_path / "new.axmodel", tmp_path / "again.toml"
    assert engineset("refit", silero_engine(chip), "--checkpoint", source, "-o", new).returncode == 0
    done = engineset("decode", new, "--checkpoint", source, "-o", again)
    assert done.returncode == 0, done.stderr
    assert by_name(read_layout(again)) == by_name(read_layout(known(chip)))
    assert read_layout(again).outside == read_layout(known(chip)).outside


def by_name(layout: EngineLayout) -> list[StoredTensor]:
    """A safetensors file has its tensors in another order than the ONNX file."""
    return sorted(layout.tensors, key=lambda stored: stored.name)


@pytest.mark.parametrize("chip", CHIPS)
def test_decode_needs_no_known_layouts(chip: str, tmp_path: Path) -> None:
    """A copy of the packages without them writes the same bytes."""
    for package in ("layouts", "pipeline"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("known", "__pycache__"))
    code = "import sys; from pipeline.cli import main; sys.argv[0] = 'engineset'; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "decode",
        silero_engine(chip),
        "--checkpoint",
        silero_weights(),
        "-o",
        "x.toml",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "layouts" / "known").exists()
    assert (tmp_path / "x.toml").read_bytes() == known(chip).read_bytes()


@pytest.mark.parametrize("generation", ["1.1", "1.6"])
def test_weights_in_older_containers(generation: str, tmp_path: Path) -> None:
    """Files by hand: decoded to the same places, refitted, nothing else moves."""
    held = blob_of(silero_engine("ax650"), "ax650").tobytes()
    engine = save(BUILDS[generation]([held]), tmp_path / "old.axmodel")
    data, layout, new = engine.read_bytes(), tmp_path / "x.layout.toml", tmp_path / "new.axmodel"
    done = engineset("decode", engine, "--checkpoint", silero_weights(), "-o", layout)
    assert done.returncode == 0, done.stderr
    found = read_layout(layout)
    assert found.tensors == read_layout(known("ax650")).tensors
    assert data[found.blob_offset : found.blob_offset + found.blob_bytes] == held
    source = other_silero_weights()
    done = engineset("refit", engine, "--layout", layout, "--checkpoint", source, "-o", new)
    assert done.returncode == 0, done.stderr
    at, fresh = found.blob_offset, expected("ax650", weights(source))[FIRST : FIRST + len(held)]
    assert new.read_bytes() == data[:at] + fresh + data[at + len(held) :]
    verified = engineset("verify", new, "--layout", layout, "--checkpoint", source, "--template", engine)
    assert verified.returncode == 0, verified.stderr
