"""What `diff` counts, against counts made from the weights themselves and from the bytes that were changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layouts.stored import EngineLayout
from layouts.view import read_tensor
from pipeline.container.blob import read_blob, weight_blob
from pipeline.errors import MismatchError
from pipeline.refit import outside, stray
from pipeline.refit.diff import TensorChange, diff_engines
from pipeline.refit.stray import ByteRange
from tests.helpers.engines import overwrite
from tests.helpers.networks import BYTES, LSTM, NARROW, WIDE, compiled, network_layout, random_weights


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return compiled(tmp_path / "a.axmodel", random_weights(1))


@pytest.fixture
def layout(engine: Path) -> EngineLayout:
    return network_layout(engine)


def copied(engine: Path, changes: dict[int, int]) -> Path:
    """The engine with bits of bytes of its blob turned over."""
    path = engine.with_name("b.axmodel")
    path.write_bytes(engine.read_bytes())
    start = weight_blob(path).offset
    for at, bits in changes.items():
        overwrite(path, start + at, bytes([engine.read_bytes()[start + at] ^ bits]))
    return path


def test_equal_engines(engine: Path, layout: EngineLayout) -> None:
    found = diff_engines(engine, copied(engine, {}), layout)
    assert not found.differs
    copies = [("wide", "only"), ("narrow", "decode"), ("narrow", "prefill"), ("lstm", "only"), ("lstm_bias", "only")]
    assert [(item.tensor, item.copy) for item in found.tensors] == copies
    assert [item.elements for item in found.tensors] == [60, 24, 12, 32, 4]
    assert all(item == TensorChange(item.tensor, item.copy, item.elements) for item in found.tensors)


def test_other_weights_are_counted_tensor_by_tensor(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    other = compiled(tmp_path / "b.axmodel", random_weights(2))
    found = {(item.tensor, item.copy): item for item in diff_engines(engine, other, layout).tensors}
    assert not diff_engines(engine, other, layout).stray.differs
    lstm = [random_weights(seed)["lstm"] for seed in (1, 2)]
    assert found["lstm", "only"].changed == np.count_nonzero(lstm[0] != lstm[1])
    assert found["lstm", "only"].largest == np.abs(lstm[0].astype(float) - lstm[1]).max()
    wide = [read_tensor(read_blob(path), layout["wide"]).astype(float)[:, 5:] for path in (engine, other)]
    assert found["wide", "only"].largest == np.abs(wide[0] - wide[1]).max()
    assert (found["wide", "only"].scale_entries, found["wide", "only"].bias_entries) == (6, 6)
    assert found["narrow", "prefill"].scale_entries == 2


def test_steps_are_those_of_stored_integers_and_of_neighbouring_floats(engine: Path, layout: EngineLayout) -> None:
    other = copied(engine, {WIDE + 40: 3, NARROW + 3: 0x10, LSTM: 5})
    start = weight_blob(engine).offset
    old, new = (np.frombuffer(path.read_bytes()[start : start + BYTES], np.uint8) for path in (engine, other))
    found = {(item.tensor, item.copy): item for item in diff_engines(engine, other, layout).tensors if item.differs}
    assert set(found) == {("wide", "only"), ("narrow", "decode"), ("lstm", "only")}
    q = [int(np.int8(data[WIDE + 40].astype(np.int8))) for data in (old, new)]
    wide = found["wide", "only"]
    assert (wide.changed, wide.first, wide.steps) == (1, (1, 5), abs(q[0] - q[1]))
    narrow = found["narrow", "decode"]
    assert (narrow.changed, narrow.first, narrow.steps) == (1, (0, 1), 16)
    lstm = found["lstm", "only"]
    assert (lstm.changed, lstm.first) == (1, (0, 0))
    assert lstm.steps == abs(int(old[LSTM]) - int(new[LSTM]))


def test_float_that_changes_its_sign_is_as_many_steps_away_as_numbers_lie_between(
    engine: Path, layout: EngineLayout
) -> None:
    other = copied(engine, {LSTM + 3: 0x80})
    (lstm,) = (item for item in diff_engines(engine, other, layout).tensors if item.differs)
    start = weight_blob(engine).offset
    magnitude = int(np.frombuffer(engine.read_bytes()[start + LSTM :][:4], "<u4")[0]) & 0x7FFFFFFF
    assert lstm.steps == 2 * magnitude


def test_entries_alone_change_values_and_no_integer(engine: Path, layout: EngineLayout) -> None:
    other = copied(engine, {WIDE + 12: 0x40, WIDE + 16 + 40: 1, WIDE + 16 + 80: 1})
    (wide,) = (item for item in diff_engines(engine, other, layout).tensors if item.differs)
    assert (wide.changed, wide.first, wide.steps, wide.scale_entries, wide.bias_entries) == (0, None, 0, 1, 2)
    assert wide.largest > 0


def test_scales_that_are_no_numbers_do_not_stop_it(engine: Path, layout: EngineLayout) -> None:
    start = weight_blob(engine).offset
    old = engine.read_bytes()[start + WIDE + 12 : start + WIDE + 16]
    other = copied(engine, {WIDE + 12 + i: byte ^ old[i] for i, byte in enumerate(b"\0\0\xc0\x7f")})
    (wide,) = (item for item in diff_engines(engine, other, layout).tensors if item.differs)
    assert wide.largest == np.inf
    assert not diff_engines(other, other, layout).differs


@pytest.mark.parametrize("chunk", [1 << 20, 16, 5])
def test_stray_bytes_are_ranges_in_both_files(
    engine: Path, layout: EngineLayout, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    for module in (outside, stray):
        monkeypatch.setattr(module, "CHUNK", chunk)
    other = copied(engine, dict.fromkeys((0, 1, 2, 3, 14, 15, WIDE, WIDE + 10, WIDE + 11, BYTES - 1), 255))
    overwrite(other, other.stat().st_size - 2, b"zz")
    start, size = weight_blob(engine).offset, engine.stat().st_size
    found = diff_engines(engine, other, layout).stray
    inside = [(0, 4), (14, 2), (WIDE + 10, 2), (BYTES - 1, 1)]
    expected = [ByteRange("weights", start + at, start + at, count) for at, count in inside]
    assert found.ranges == [*expected, ByteRange("behind the weights", size - 2, size - 2, 2)]
    assert (found.bytes, found.sizes) == (11, [])


def test_without_a_layout_there_are_bytes_only(engine: Path, tmp_path: Path) -> None:
    other = copied(engine, {WIDE: 1})
    found = diff_engines(engine, other, None)
    at = weight_blob(engine).offset + WIDE
    assert (found.tensors, found.stray.ranges) == ([], [ByteRange("file", at, at, 1)])


def test_containers_of_other_sizes_are_compared_part_by_part(
    engine: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    other = compiled(tmp_path / "b.axmodel", random_weights(1), "1.6")
    found = diff_engines(engine, other, layout)
    assert all(not item.differs for item in found.tensors)
    assert {region.name for region in found.stray.sizes} <= {"before the weights", "behind the weights"}
    assert {part.region for part in found.stray.ranges} <= {"before the weights", "behind the weights"}
    assert found.differs


def test_layout_of_another_engine_is_refused(engine: Path, layout: EngineLayout) -> None:
    with pytest.raises(MismatchError, match="the layout is of another engine"):
        diff_engines(engine, engine, replace(layout, blob_bytes=BYTES + 1))
