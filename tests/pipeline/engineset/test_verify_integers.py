"""`verify` reads integers and scale entries of every copy back: faults that no hash and no perplexity would show."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from layouts.encoding import Encoded
from layouts.sidecar import read_layout
from layouts.stored import StoredTensor
from layouts.strided import Bytes
from layouts.view import read_encoded, write_tensor
from pipeline.axmodel.walk import walk_engine
from pipeline.engineset.manifest import FileEntry, encode_manifest, read_manifest
from pipeline.engineset.verify import verify_set
from pipeline.files import file_sha256
from tests.helpers.given_layouts import give_layouts
from tests.helpers.sets import Tiny, built, make_tiny, write_config

LAYER, NAME = "qwen2_p8_l1_together.axmodel", "mlp.up_proj.weight"
ROW = 40
FLAGS = {"layout_seed": 3, "post_weight_type": "s8", "prefill_share": 0.9}
MODES = {
    "refit": ("s8", {"scale_rule": "group/127"}),
    "search": ("s4", {}),
    "engine": ("s8", {"checkpoint": {"path": "base/tiny.gguf"}}),
}


@pytest.fixture(scope="module", params=MODES)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp(request.param)
    sizes = {"vocab_size": 70, "hidden_size": 320, "intermediate_size": 96}
    make_tiny(folder / "base", seed=2, **sizes)
    made = make_tiny(folder, **sizes)
    weight_type, flags = MODES[request.param]
    write_config(made.config, "qwen2", top={"scales": request.param}, weight_type=weight_type, **FLAGS, **flags)
    give_layouts(made)
    built(made)
    return made


@dataclass(frozen=True)
class Spoilt:
    """A copy of a set that a test spoils: one weight of a layer, and what it holds."""

    directory: Path
    stored: StoredTensor
    blob: Bytes
    held: Encoded

    @property
    def entries(self) -> np.ndarray:
        assert self.held.entries is not None
        return self.held.entries

    @property
    def mode(self) -> str:
        return read_manifest(self.directory).scales

    def write(self, held: Encoded, copy: str = "") -> None:
        """Into every copy, or into one alone."""
        write_tensor(self.blob, self.stored, held)
        if copy:
            others = tuple(item for item in self.stored.copies if item.name != copy)
            write_tensor(self.blob, replace(self.stored, copies=others), self.held)

    def faults(self) -> list[str]:
        """Of a set whose hashes were all taken anew."""
        self.blob.flush()
        manifest = read_manifest(self.directory)
        for name in manifest.files:
            path = self.directory / name
            manifest.files[name] = FileEntry(path.stat().st_size, file_sha256(path))
        (self.directory / "manifest.json").write_bytes(encode_manifest(manifest))
        return verify_set(self.directory).faults


@pytest.fixture
def spoilt(tiny: Tiny, tmp_path: Path) -> Iterator[Spoilt]:
    directory = tmp_path / "set"
    shutil.copytree(tiny.set, directory)
    stored = read_layout(directory / "layer.layout.toml")[NAME]
    weights = walk_engine(directory / LAYER).weights
    blob = np.memmap(directory / LAYER, np.uint8, "r+", weights.offset, (weights.size,))
    yield Spoilt(directory, stored, blob, read_encoded(blob, stored))
    shutil.rmtree(directory)


def test_whole_set_is_verified(tiny: Tiny) -> None:
    result = verify_set(tiny.set)
    assert result.faults == []
    reports = [t for engine in read_manifest(tiny.set).engines.values() for t in engine["tensors"].values()]
    assert result.elements == sum(report["elements"] for report in reports)
    assert {report["scales"] for report in reports if report["codec"] != "bf16"} == {read_manifest(tiny.set).scales}


def test_shifted_row_is_found(spoilt: Spoilt) -> None:
    raw = spoilt.held.raw.copy()
    raw[ROW] = np.roll(raw[ROW], 1)
    spoilt.write(Encoded(raw, spoilt.entries))
    (fault,) = spoilt.faults()
    assert f"{LAYER}: {NAME}[{ROW}, " in fault
    assert "decode copy: reads back otherwise" in fault


def shifted_cluster(entries: np.ndarray) -> np.ndarray:
    """The entries of 32 rows, each where its neighbour belongs."""
    spoilt = entries.copy()
    spoilt[32:64] = np.roll(spoilt[32:64], 1, axis=0)
    return spoilt


def last_place(bit: int) -> Callable[[np.ndarray], np.ndarray]:
    def spoil(entries: np.ndarray) -> np.ndarray:
        spoilt = entries.copy()
        spoilt[ROW, 0] ^= 1 << bit % (8 * entries.dtype.itemsize)
        return spoilt

    return spoil


@pytest.mark.parametrize("spoil", [shifted_cluster, last_place(0), last_place(16)], ids=["cluster", "low", "high"])
def test_wrong_entry_is_found(spoilt: Spoilt, spoil: Callable[[np.ndarray], np.ndarray]) -> None:
    entries = spoil(spoilt.entries)
    row, group = np.argwhere(entries != spoilt.entries)[0]
    spoilt.write(Encoded(spoilt.held.raw, entries))
    (fault,) = spoilt.faults()
    if spoilt.mode == "engine":
        reasons = ("contradicts itself", "reads back otherwise", "not those that were written")
        assert f"{LAYER}: {NAME}" in fault and any(reason in fault for reason in reasons)
    else:
        assert f"{NAME}[{row}] decode copy, scale entry of group {group}: reads back otherwise" in fault


@pytest.mark.parametrize("what", ["integers", "entries"])
def test_stale_prefill_copy_is_found(spoilt: Spoilt, what: str) -> None:
    raw, entries = spoilt.held.raw.copy(), spoilt.entries.copy()
    row = spoilt.stored.copy("prefill").rows[0][0]
    if what == "integers":
        raw[row] = raw[row][::-1]
    else:
        entries[row, 0] += 1
    spoilt.write(Encoded(raw, entries), copy="prefill")
    (fault,) = spoilt.faults()
    where = f"{NAME}[{row}, " if what == "integers" else f"{NAME}[{row}] prefill copy, scale entry of group 0"
    assert where in fault
    assert "prefill copy" in fault


def test_one_step_is_found(spoilt: Spoilt) -> None:
    """As a correction would look that the engine did not have."""
    raw = spoilt.held.raw.copy()
    raw[ROW, 5] ^= 1
    spoilt.write(Encoded(raw, spoilt.entries))
    (fault,) = spoilt.faults()
    expected = NAME if spoilt.mode == "engine" else f"{NAME}[{ROW}, 5] decode copy"
    assert f"{LAYER}: {expected}: " in fault
