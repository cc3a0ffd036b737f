"""Two chips' engines of a closed compiler, whole: decoded from their weights, refitted, restored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from layouts.stored import EngineLayout
from pipeline.checkpoint.open import open_weights_source
from pipeline.container.blob import read_blob
from pipeline.decode.anchored import decode_engine
from pipeline.errors import EngineSetError
from pipeline.refit.diff import diff_engines
from pipeline.refit.outside import outside_sha256
from pipeline.refit.single_refit import NamedLayout, Sources, open_assigned, refit_file
from pipeline.refit.single_verify import verify_engine
from tests.helpers.networks import write_source
from tests.helpers.real_engines import other_silero_weights, silero_engine, silero_weights

CONVOLUTIONS = [f"model.encoder.{i}.reparam_conv.weight" for i in range(4)]
LSTM = ["model.decoder.rnn.weight_ih", "model.decoder.rnn.weight_hh"]


@dataclass(frozen=True)
class Real:
    """An engine and what was decoded of it."""

    path: Path
    layout: EngineLayout


@pytest.fixture(scope="module", params=["ax650", "ax630c"])
def real(request: pytest.FixtureRequest) -> Real:
    path = silero_engine(request.param)
    return Real(path, decode_engine(path, open_weights_source(silero_weights())).layout)


def put(real: Real, engine: Path, source: Path, output: Path, scales: str = "refit") -> Path:
    refit_file(engine, NamedLayout("decoded", real.layout), Sources(source), scales, output)
    return output


def perturbed(path: Path, seed: int) -> Path:
    """Every weight moved by up to a tenth, one row of each convolution set to zero."""
    source, noise = open_weights_source(silero_weights()), np.random.default_rng(seed)
    weights = {name: source.read(name) for name in source.names()}
    for name, values in weights.items():
        values *= 1 + noise.uniform(-0.1, 0.1, values.shape).astype(np.float32)
        if name in CONVOLUTIONS:
            values[noise.integers(len(values))] = 0
            weights[name.replace("weight", "bias")][:] = 0
    return write_source(path, weights)


def test_all_matrices_have_a_place(real: Real) -> None:
    assert {"model.stft.forward_basis_buffer", *CONVOLUTIONS, *LSTM} <= set(real.layout.names())
    assert real.layout.outside == outside_sha256(real.path, real.layout)


@pytest.mark.parametrize("scales", ["refit", "engine"])
def test_own_weights_are_the_identity(real: Real, tmp_path: Path, scales: str) -> None:
    output = put(real, real.path, silero_weights(), tmp_path / "out.axmodel", scales)
    assert output.read_bytes() == real.path.read_bytes()


@pytest.mark.parametrize("which", ["perturbed", "6.0.0"])
def test_other_weights_go_in_verify_and_go_out(real: Real, tmp_path: Path, which: str) -> None:
    source = other_silero_weights() if which == "6.0.0" else perturbed(tmp_path / "weights.safetensors", 11)
    output = put(real, real.path, source, tmp_path / "out.axmodel")
    weights, _ = open_assigned(real.layout, source, None)
    assert verify_engine(output, weights, "refit", real.path).faults == []
    found = diff_engines(real.path, output, real.layout)
    assert not found.stray.differs
    assert {item.tensor for item in found.tensors if item.differs} >= {*CONVOLUTIONS, *LSTM}
    assert outside_sha256(output, real.layout) == real.layout.outside
    back = put(real, output, silero_weights(), tmp_path / "back.axmodel")
    assert back.read_bytes() == real.path.read_bytes()


def test_refitted_engine_decodes_from_its_new_weights(real: Real, tmp_path: Path) -> None:
    """To the same places; constants that no weight fixes exactly may differ."""
    output = put(real, real.path, other_silero_weights(), tmp_path / "out.axmodel")
    again = decode_engine(output, open_weights_source(other_silero_weights())).layout
    assert again.names() == real.layout.names()
    for ours, theirs in zip(real.layout.tensors, again.tensors, strict=True):
        assert (ours.shape, ours.codec, ours.copies, ours.order) == (
            theirs.shape,
            theirs.codec,
            theirs.copies,
            theirs.order,
        )
    assert again.outside == real.layout.outside


def test_swapped_engines_are_refused(real: Real, tmp_path: Path) -> None:
    other = silero_engine("ax630c" if real.path == silero_engine("ax650") else "ax650")
    assert read_blob(other).size != real.layout.blob_bytes
    with pytest.raises(EngineSetError, match="the layout is of another engine"):
        put(real, other, silero_weights(), tmp_path / "out.axmodel")
