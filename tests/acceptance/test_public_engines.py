"""The public Pulsar2 engines through the command line, against the facts of the file format written out in NumPy."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import numpy_helper

from layouts.sidecar import read_layout
from tests.helpers.real_engines import other_silero_weights, silero_engine, silero_weights
from tests.helpers.sets import engineset

CHIPS = ("ax650", "ax630c")
KNOWN = Path(__file__).parents[2] / "layouts" / "known"
FOUND = ["model.stft.forward_basis_buffer"] + [f"model.encoder.{n}.reparam_conv.weight" for n in range(4)]
LSTM = ["model.decoder.rnn.weight_ih", "model.decoder.rnn.weight_hh"]
BLOB = 478
"""Where `npu_params` begins in both files."""

Bytes = npt.NDArray[np.uint8]


def weights(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    return {item.name: numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer}


def params(engine: Path) -> Bytes:
    """The weight blob, as the `onnx` package reads it."""
    items = {item.name: item.raw_data for item in onnx.load(engine).graph.initializer}
    return np.frombuffer(items["npu_params"], np.uint8)


def quantized(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    scale = np.abs(matrix).max(axis=1, keepdims=True) / np.float32(127.5)
    scale = np.where(scale == 0, np.float32(1), scale)
    return np.clip(np.rint(matrix / scale), -128, 127).astype(np.int8)


@pytest.fixture(scope="module", params=CHIPS)
def decoded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict]:
    folder = tmp_path_factory.mktemp(request.param)
    layout, picture = folder / "x.layout.toml", folder / "x.png"
    done = engineset(
        "decode",
        silero_engine(request.param),
        "--checkpoint",
        silero_weights(),
        "-o",
        layout,
        "--plot",
        picture,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    return request.param, layout, json.loads(done.stdout)


def test_everything_but_the_one_row_is_found(decoded: tuple[str, Path, dict]) -> None:
    _, layout, report = decoded
    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    names = read_layout(layout).names()
    assert set(FOUND + LSTM) <= set(names)
    for name, tensor in tensors.items():
        assert tensor["unexplained"] == tensor["corrected"] == 0, name
    without = [name for name, tensor in tensors.items() if not tensor["copies"] and not tensor["beside"]]
    assert without == ["model.decoder.decoder.2.weight", "model.decoder.decoder.2.bias"]
    assert report["blobs"][0]["share"] > 0.96


def test_layout_is_the_known_one(decoded: tuple[str, Path, dict]) -> None:
    chip, layout, _ = decoded
    assert layout.read_text() == (KNOWN / f"silero-vad-16k-{chip}.layout.toml").read_text()


def test_picture_is_one(decoded: tuple[str, Path, dict]) -> None:
    from matplotlib.image import imread

    picture = imread(decoded[1].with_name("x.png"))
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 8


def test_float_lines_stand_where_the_facts_say(decoded: tuple[str, Path, dict]) -> None:
    """axmodel facts, section 2: byte(r, k) = base + 4 (r % 32) + 128 k + 16512 (r // 32)."""
    chip, layout, _ = decoded
    if chip != "ax650":
        pytest.skip("the other chip stores the LSTM as int8")
    blob, matrix = params(silero_engine(chip)), weights(silero_weights())["model.decoder.rnn.weight_hh"]
    row, col = np.indices(matrix.shape)
    at = 4 * (row % 32) + 128 * col + 16512 * (row // 32)
    held = blob[at[..., None] + np.arange(4)].view("<f4")[..., 0]
    assert np.array_equal(held, matrix)
    plane = read_layout(layout)["model.decoder.rnn.weight_hh"].copies[0].planes[0]
    assert np.array_equal(plane.addresses(0, 512), 8 * at)


def test_nibble_planes_stand_where_the_facts_say(decoded: tuple[str, Path, dict]) -> None:
    """axmodel facts, section 3, of encoder.1: k runs (tap, channel)."""
    chip, layout, _ = decoded
    if chip != "ax650":
        pytest.skip("the other chip stores plain int8")
    name = "model.encoder.1.reparam_conv.weight"
    matrix = weights(silero_weights())[name].transpose(0, 2, 1).reshape(64, 384)
    row, k = np.indices(matrix.shape)
    byte = 401032 + 12928 * (row // 32) + 36 * ((row // 16) % 2) + 792 * (row % 16) + 72 * (k // 36) + (k % 36) // 2
    blob, shift = params(silero_engine(chip)).astype(np.int64), 4 * (k % 2)
    fine, coarse = (blob[byte] >> shift) & 15, (blob[byte + 18] >> shift) & 15
    assert np.array_equal(((coarse - 8) << 4) | fine, quantized(matrix))
    found = read_layout(layout)[name]
    assert found.order == (0, 2, 1)
    assert np.array_equal(found.copies[0].planes[0].addresses(0, 64), 8 * byte + shift)


def test_last_rows_stand_in_a_half_block(decoded: tuple[str, Path, dict]) -> None:
    """Rows 256 and 257 of the STFT basis: chunks of 36 bytes one behind the other, 288 bytes a row; the last row is zeros."""
    chip, layout, _ = decoded
    if chip != "ax650":
        pytest.skip("the other chip has no planes")
    row, k = np.indices((2, 256))
    byte = 339968 + 288 * row + 36 * (k // 36) + (k % 36) // 2
    fine = read_layout(layout)[FOUND[0]].copies[0].planes[0]
    assert np.array_equal(fine.addresses(256, 258), 8 * byte + 4 * (k % 2))


def test_dropped_taps_and_constants(decoded: tuple[str, Path, dict]) -> None:
    chip, _, report = decoded
    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    absent = [tensors[name]["absent"] for name in FOUND]
    assert absent == ([0, 0, 0, 4096, 16384] if chip == "ax650" else [0] * 5)
    assert tensors[FOUND[0]]["bias"]["zero_point"] == 28598
    assert tensors[FOUND[1]]["bias"] == {
        "tensor": "model.encoder.0.reparam_conv.bias",
        "entry": "fp32" if chip == "ax650" else "int32",
        "factor": pytest.approx(0.00019644212),
        "zero_point": 0,
    }


def test_other_weights_go_in_and_come_out_again(decoded: tuple[str, Path, dict], tmp_path: Path) -> None:
    chip, layout, _ = decoded
    engine, other = silero_engine(chip), other_silero_weights()
    new, again, back = tmp_path / "new.axmodel", tmp_path / "again.layout.toml", tmp_path / "back.axmodel"
    for done in (
        engineset("refit", engine, "--layout", layout, "--checkpoint", other, "-o", new),
        engineset("verify", new, "--layout", layout, "--checkpoint", other, "--template", engine),
        engineset("decode", new, "--checkpoint", other, "-o", again),
        engineset("refit", new, "--layout", layout, "--checkpoint", silero_weights(), "-o", back),
    ):
        assert done.returncode == 0, done.stderr
    assert again.read_text() == layout.read_text()
    assert back.read_bytes() == engine.read_bytes()
    old, fresh = (np.frombuffer(path.read_bytes(), np.uint8) for path in (engine, new))
    assert len(old) == len(fresh)
    assert not np.flatnonzero(old != fresh)[:1] < BLOB


def moved_blob(engine: Path, layout: Path, target: Path, seed: int) -> dict[str, int]:
    """The engine with its blob cut between tensors and put together in another order; where each tensor begins then."""
    tensors = read_layout(layout).tensors
    spans = sorted(
        (min(own.extent[0] for own in t.layouts()) // 8, -(-max(own.extent[1] for own in t.layouts()) // 8), t.name)
        for t in tensors
    )
    data, old = bytearray(engine.read_bytes()), params(engine)
    cuts = [0]
    for start, _, _ in spans:
        if all(stop <= start for begin, stop, _ in spans if begin < start):
            cuts.append(start)
    edges = sorted({*cuts, len(old)})
    parts = [old[low:high].tobytes() for low, high in pairwise(edges)]
    order = np.random.default_rng(seed).permutation(len(parts))
    moved, places, at = b"".join(parts[i] for i in order), {}, 0
    for i in order:
        for start, _, name in spans:
            if edges[i] <= start < edges[i + 1]:
                places[name] = at + start - edges[i]
        at += len(parts[i])
    data[BLOB : BLOB + len(old)] = moved
    target.write_bytes(data)
    return places


@pytest.mark.parametrize("seed", range(3))
def test_tensors_that_were_moved_about_are_found(decoded: tuple[str, Path, dict], tmp_path: Path, seed: int) -> None:
    chip, layout, _ = decoded
    target, found = tmp_path / "moved.axmodel", tmp_path / "moved.layout.toml"
    places = moved_blob(silero_engine(chip), layout, target, seed)
    done = engineset("decode", target, "--checkpoint", silero_weights(), "-o", found)
    assert done.returncode == 0, done.stderr
    moved = read_layout(found)
    assert moved.names() == read_layout(layout).names()
    for name, place in places.items():
        assert min(layout.extent[0] for layout in moved[name].layouts()) // 8 == place, name


def test_another_models_weights_are_refused(decoded: tuple[str, Path, dict], tmp_path: Path) -> None:
    model, rng = onnx.load(silero_weights()), np.random.default_rng(0)
    for item in model.graph.initializer:
        array = numpy_helper.to_array(item)
        if array.dtype == np.float32 and array.size > 1:
            item.CopyFrom(numpy_helper.from_array(rng.standard_normal(array.shape).astype(np.float32), item.name))
    onnx.save(model, tmp_path / "other.onnx")
    target = tmp_path / "x.layout.toml"
    done = engineset("decode", silero_engine(decoded[0]), "--checkpoint", tmp_path / "other.onnx", "-o", target)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert not target.exists()


def test_one_changed_weight_is_not_passed_over(decoded: tuple[str, Path, dict], tmp_path: Path) -> None:
    model = onnx.load(silero_weights())
    for item in model.graph.initializer:
        if item.name == FOUND[2]:
            array = numpy_helper.to_array(item).copy()
            array[3, 5, 1] = -array[3, 5, 1] + np.abs(array[3]).max() / 4
            item.CopyFrom(numpy_helper.from_array(array, item.name))
    onnx.save(model, tmp_path / "changed.onnx")
    target = tmp_path / "x.layout.toml"
    done = engineset("decode", silero_engine(decoded[0]), "--checkpoint", tmp_path / "changed.onnx", "-o", target)
    assert f"{FOUND[2]}: 1 elements are not what was expected" in done.stderr
    assert FOUND[2] not in read_layout(target).names()
