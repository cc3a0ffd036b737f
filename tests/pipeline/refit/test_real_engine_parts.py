"""A closed compiler's engine with known weights, by a layout written down by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layouts.stored import EngineLayout
from layouts.view import read_tensor
from pipeline.checkpoint.open import open_weights_source
from pipeline.container.blob import read_blob
from pipeline.errors import EngineSetError, MismatchError
from pipeline.refit.diff import diff_engines
from pipeline.refit.single_refit import NamedLayout, Sources, open_assigned, refit_file
from pipeline.refit.single_verify import verify_engine
from tests.helpers.networks import write_source
from tests.helpers.real_engines import other_silero_weights, silero_engine, silero_weights
from tests.helpers.silero_parts import CONVOLUTION, CONVOLUTION_BIAS, HIDDEN, part_layout

NAMES = (CONVOLUTION, CONVOLUTION_BIAS, HIDDEN)


@pytest.fixture(scope="module")
def layout() -> EngineLayout:
    return part_layout()


def put(engine: Path, layout: EngineLayout, source: Path, output: Path, base: Path | None = None) -> Path:
    refit_file(engine, NamedLayout("by hand", layout), Sources(source, base), "refit", output)
    return output


def perturbed(path: Path, seed: int) -> Path:
    """The engine's weights, every one moved by up to a tenth, in a file of another kind."""
    source, noise = open_weights_source(silero_weights()), np.random.default_rng(seed)
    weights = {name: source.read(name) for name in NAMES}
    for values in weights.values():
        values *= 1 + noise.uniform(-0.1, 0.1, values.shape).astype(np.float32)
    return write_source(path, weights)


def test_own_weights_are_the_identity_and_confirm_it(layout: EngineLayout, tmp_path: Path) -> None:
    engine = silero_engine("ax650")
    done = refit_file(
        engine, NamedLayout("by hand", layout), Sources(silero_weights()), "refit", tmp_path / "same.axmodel"
    )
    assert (tmp_path / "same.axmodel").read_bytes() == engine.read_bytes()
    assert done.report.planned_bytes == 4 * 512 * 128 + 64 * 384 + 64 * 8
    weights, _ = open_assigned(layout, silero_weights(), None)
    assert verify_engine(engine, weights, "refit").faults == []


@pytest.mark.parametrize("which", ["perturbed", "6.0.0"])
def test_other_weights_go_in_are_read_back_and_out_again(layout: EngineLayout, tmp_path: Path, which: str) -> None:
    engine = silero_engine("ax650")
    source = other_silero_weights() if which == "6.0.0" else perturbed(tmp_path / "weights.safetensors", 5)
    output = put(engine, layout, source, tmp_path / "out.axmodel")
    opened = open_weights_source(source)
    assert np.array_equal(read_tensor(read_blob(output), layout[HIDDEN]), opened.read(HIDDEN))
    wanted = opened.read(CONVOLUTION).transpose(0, 2, 1).reshape(64, 384)
    held = read_tensor(read_blob(output), layout[CONVOLUTION])
    assert np.all(np.abs(held - wanted).max(axis=1) <= 0.5001 * np.abs(wanted).max(axis=1) / 127.5)
    weights, _ = open_assigned(layout, source, None)
    assert verify_engine(output, weights, "refit", engine).faults == []
    found = diff_engines(engine, output, layout)
    assert all(item.differs for item in found.tensors)
    assert not found.stray.differs
    assert put(output, layout, silero_weights(), tmp_path / "back.axmodel").read_bytes() == engine.read_bytes()


def test_engine_of_the_other_chip_is_refused(layout: EngineLayout, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="the layout is of another engine"):
        put(silero_engine("ax630c"), layout, silero_weights(), tmp_path / "out.axmodel")


def test_changed_engine_is_refused_unless_its_weights_confirm_it(layout: EngineLayout, tmp_path: Path) -> None:
    engine = tmp_path / "changed.axmodel"
    data = bytearray(silero_engine("ax650").read_bytes())
    data[-1] ^= 1
    engine.write_bytes(data)
    with pytest.raises(MismatchError, match="the layout is not confirmed on this engine"):
        put(engine, layout, silero_weights(), tmp_path / "out.axmodel")
    put(engine, layout, silero_weights(), tmp_path / "out.axmodel", silero_weights())
    with pytest.raises(EngineSetError, match="stored elements that are not the known weights"):
        put(engine, layout, silero_weights(), tmp_path / "other.axmodel", other_silero_weights())
    assert (tmp_path / "out.axmodel").read_bytes() == bytes(data)
