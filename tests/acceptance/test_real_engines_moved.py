"""Public engines whose blobs were cut up, damaged or filled with noise: what is there is found, what is not is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from layouts.marking import mark_tensor
from layouts.sidecar import read_layout
from layouts.stored import EngineLayout
from tests.helpers.real_engines import silero_engine, silero_weights
from tests.helpers.sets import ROOT, engineset
from tests.helpers.silero_bytes import BLOB, ENCODER, HIDDEN, INPUT, Bytes, Constants, cuts, own_bits

FIRST = 478
TWO_CHIPS = [(chip, seed) for chip in ("ax650", "ax630c") for seed in range(2)]
ONE_ROW = ["model.decoder.decoder.2.weight", "model.decoder.decoder.2.bias"]


def weights() -> dict[str, npt.NDArray[np.float32]]:
    return {item.name: numpy_helper.to_array(item) for item in onnx.load(silero_weights()).graph.initializer}


def known(chip: str) -> EngineLayout:
    return read_layout(ROOT / "layouts" / "known" / f"silero-vad-16k-{chip}.layout.toml")


def bits_of(chip: str, names: set[str] | None = None) -> Bytes:
    given = {
        stored.name: Constants(stored.scales.factor, stored.bias.factor, stored.bias.zero_point)
        for stored in known(chip).tensors
        if stored.scales is not None and stored.bias is not None
    }
    return own_bits(chip, weights(), given, names)


def blob_of(chip: str) -> Bytes:
    return np.frombuffer(silero_engine(chip).read_bytes(), np.uint8)[FIRST : FIRST + BLOB[chip]]


def write_engine(chip: str, blob: Bytes, path: Path) -> Path:
    data = silero_engine(chip).read_bytes()
    path.write_bytes(data[:FIRST] + blob.tobytes() + data[FIRST + blob.size :])
    return path


def decode(engine: Path, output: Path) -> tuple[EngineLayout, dict[str, Any]]:
    done = engineset("decode", engine, "--checkpoint", silero_weights(), "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    return read_layout(output), {item["name"]: item for item in json.loads(done.stdout)["tensors"]}


def nowhere(report: dict[str, Any]) -> list[str]:
    return [name for name, item in report.items() if not item["copies"] and not item["beside"] and name not in ONE_ROW]


def owned(layout: EngineLayout, size: int) -> Bytes:
    mask = np.zeros(size, np.uint8)
    for stored in layout.tensors:
        mark_tensor(mask, stored, 0)
    return mask


def moved(chip: str, seed: int, swaps: int | None) -> npt.NDArray[np.int64]:
    """Where each byte goes when blocks of rows change places: some of them, or (None) all."""
    edges, random = np.array(cuts(chip)), np.random.default_rng(seed)
    order = random.permutation(len(edges) - 1) if swaps is None else np.arange(len(edges) - 1)
    for _ in range(swaps or 0):
        pair = random.integers(len(order), size=2)
        order[pair] = order[pair[::-1]]
    goes = np.empty(edges[-1], np.int64)
    goes[np.concatenate([np.arange(edges[i], edges[i + 1]) for i in order])] = np.arange(edges[-1])
    return goes


def check_moved(chip: str, goes: npt.NDArray[np.int64], folder: Path) -> None:
    blob, there = np.empty(BLOB[chip], np.uint8), np.empty(BLOB[chip], np.uint8)
    blob[goes], there[goes] = blob_of(chip), bits_of(chip)
    found, report = decode(write_engine(chip, blob, folder / "moved.axmodel"), folder / "x.layout.toml")
    assert nowhere(report) == []
    assert np.array_equal(owned(found, blob.size), there)


@pytest.mark.parametrize(("chip", "seed"), TWO_CHIPS)
def test_some_blocks_of_rows_in_other_places(chip: str, seed: int, tmp_path: Path) -> None:
    check_moved(chip, moved(chip, seed, 6), tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_every_block_of_rows_in_another_place(seed: int, tmp_path: Path) -> None:
    check_moved("ax650", moved("ax650", seed, None), tmp_path)


@pytest.mark.parametrize(("chip", "share"), [("ax650", 0.1), ("ax650", 1.0), ("ax630c", 0.1), ("ax630c", 1.0)])
def test_noise_where_no_tensor_is(chip: str, share: float, tmp_path: Path) -> None:
    blob, own, random = blob_of(chip), bits_of(chip), np.random.default_rng(7)
    noise = random.integers(0, 256, blob.size, dtype=np.uint8)
    blob = np.where(random.random(blob.size) < share, (blob & own) | (noise & ~own), blob)
    found, report = decode(write_engine(chip, blob, tmp_path / "noisy.axmodel"), tmp_path / "x.layout.toml")
    assert nowhere(report) == []
    assert np.array_equal(owned(found, blob.size), own)
    assert found.tensors == known(chip).tensors


@pytest.mark.parametrize(
    ("chip", "name"), [("ax650", ENCODER[1]), ("ax650", HIDDEN), ("ax630c", ENCODER[2]), ("ax630c", INPUT)]
)
def test_tensor_that_is_gone_is_said_and_no_other(chip: str, name: str, tmp_path: Path) -> None:
    blob = blob_of(chip) & ~bits_of(chip, {name})
    found, report = decode(write_engine(chip, blob, tmp_path / "gone.axmodel"), tmp_path / "x.layout.toml")
    bias = known(chip)[name].bias
    assert nowhere(report) == [name, *([bias.tensor] if bias is not None else [])]
    assert found.tensors == tuple(stored for stored in known(chip).tensors if stored.name != name)


@pytest.mark.parametrize(("chip", "steps"), [("ax650", 1), ("ax630c", 1), ("ax650", 2), ("ax630c", 2)])
def test_one_step_is_corrected_two_are_not_explained(chip: str, steps: int, tmp_path: Path) -> None:
    """One weight that the engine was not compiled from, by so many steps of its row; the row's largest stays what it is."""
    name = ENCODER[1]
    matrix = weights()[name].transpose(0, 2, 1).reshape(64, 384)
    scale = np.abs(matrix).max(axis=1) / np.float32(127.5)
    col = int(np.argmin(np.abs(matrix[9])))
    model = onnx.load(silero_weights())
    (item,) = (item for item in model.graph.initializer if item.name == name)
    array = numpy_helper.to_array(item).copy()
    array[9, col % 128, col // 128] += steps * scale[9]
    item.CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "w.onnx")
    target = tmp_path / "x.layout.toml"
    done = engineset("decode", silero_engine(chip), "--checkpoint", tmp_path / "w.onnx", "-o", target, "--json")
    (report,) = (item for item in json.loads(done.stdout)["tensors"] if item["name"] == name)
    assert (report["corrected"], report["unexplained"]) == ((1, 0) if steps == 1 else (0, 1))
    assert (name in read_layout(target).names()) == (steps == 1), report
    assert ("no layout" in done.stderr and name in done.stderr) == (steps != 1)
