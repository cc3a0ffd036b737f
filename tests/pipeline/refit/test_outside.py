"""What an engine is outside its weights: one hash for all refits of it, another for any other bit."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layouts.stored import EngineLayout
from pipeline.container.blob import weight_blob
from pipeline.errors import MismatchError
from pipeline.refit import outside
from pipeline.refit.outside import outside_sha256
from tests.helpers.integers import integer_engines
from tests.helpers.layouts import engines
from tests.helpers.networks import compiled, network_layout, random_weights


def straight(data: bytes, start: int, layout: EngineLayout) -> str:
    """Bit by bit, from the addresses of each element."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    for stored in layout.tensors:
        for copy in stored.copies:
            for plane in copy.everything():
                at = plane.addresses(0, stored.shape[0])
                for bit in range(plane.width):
                    bits[8 * start + at[at >= 0] + bit] = 0
    return hashlib.sha256(np.packbits(bits, bitorder="little").tobytes()).hexdigest()


@pytest.mark.parametrize("chunk", [1 << 20, 7, 64])
def test_every_owned_bit_is_zero_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(outside, "CHUNK", chunk)
    engine = compiled(tmp_path / "a.axmodel", random_weights(1))
    layout = network_layout(engine)
    assert outside_sha256(engine, layout) == straight(engine.read_bytes(), weight_blob(engine).offset, layout)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(engines(), integer_engines()), st.integers(0, 5))
def test_any_layout_of_a_file_without_a_container(tmp_path: Path, layout: EngineLayout, seed: int) -> None:
    data = np.random.default_rng(seed).bytes(layout.blob_bytes)
    path = tmp_path / "weights.bin"
    path.write_bytes(data)
    assert outside_sha256(path, layout) == straight(data, 0, layout)


def test_other_weights_have_the_same_hash_and_other_versions_another(tmp_path: Path) -> None:
    first, second, other = (
        compiled(tmp_path / f"{i}.axmodel", random_weights(seed), version=version)
        for i, (seed, version) in enumerate([(1, 0), (2, 0), (1, 1)])
    )
    layout = network_layout(first)
    assert outside_sha256(second, layout) == layout.outside != outside_sha256(other, layout)


def test_layout_of_another_size_is_refused(tmp_path: Path) -> None:
    engine = compiled(tmp_path / "a.axmodel", random_weights(1))
    layout = network_layout(engine)
    with pytest.raises(MismatchError, match="the layout is of another engine"):
        outside_sha256(engine, replace(layout, blob_bytes=layout.blob_bytes + 1))
