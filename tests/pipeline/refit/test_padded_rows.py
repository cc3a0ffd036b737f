"""Rows with zero points, scales of 16 bits and padding columns: refitted from a source that has none of these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layouts.algebra import parse_piece
from layouts.bias import Bias
from layouts.encoding import encode_rows
from layouts.scales import Scales
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from layouts.view import write_tensor
from pipeline.refit.outside import outside_sha256
from pipeline.refit.single_refit import NamedLayout, Sources, open_assigned, refit_file
from pipeline.refit.single_verify import verify_engine
from tests.helpers.networks import Weights, write_source

ROWS, COLS, PADDING, BYTES = 12, 30, 2, 1200


def plane(text: str) -> Plane:
    return Plane((parse_piece(f"at 0,0  {text}"),))


def tensor(transposed: bool) -> StoredTensor:
    values = plane(f"[{ROWS},{COLS + PADDING}]  rows {ROWS}:256  cols 32:8  width 8  base 0")
    entries = plane(f"[{ROWS},2]  rows {ROWS}:16  cols 2:-256  width 16  base 8256")
    bias = plane(f"[{ROWS},1]  rows {ROWS}:32  cols 1:0  width 32  base 4096")
    scales = Scales("affine", COLS + PADDING, 255.0, shared=True, factor=700_000.0, zero=1e-6)
    axes = {"dims": (COLS, ROWS), "order": (1, 0)} if transposed else {}
    rule = Bias("b", "affine", 0.037, -7)
    copy = Copy("only", (values,), entries, bias)
    return StoredTensor("w", (ROWS, COLS + PADDING), "s8", (copy,), scales, bias=rule, padding=PADDING, **axes)


def weights(seed: int, transposed: bool) -> Weights:
    noise = np.random.default_rng(seed)
    matrix = noise.uniform(-1, 3, (ROWS, COLS)).astype(np.float32)
    return {"w": matrix.T.copy() if transposed else matrix, "b": noise.uniform(-40, 40, ROWS).astype(np.float32)}


def expected(path: Path, stored: StoredTensor, given: Weights, transposed: bool) -> Path:
    data = np.frombuffer(np.random.default_rng(0).bytes(BYTES), np.uint8).copy()
    matrix = np.zeros(stored.shape, np.float32)
    matrix[:, :COLS] = given["w"].T if transposed else given["w"]
    write_tensor(data, stored, encode_rows(stored, matrix, bias=given["b"]))
    path.write_bytes(data.tobytes())
    return path


@pytest.mark.parametrize("transposed", [False, True])
def test_refit_pads_and_keeps_what_is_its_own(tmp_path: Path, transposed: bool) -> None:
    stored = tensor(transposed)
    a, b = (expected(tmp_path / f"{seed}.bin", stored, weights(seed, transposed), transposed) for seed in (1, 2))
    layout = EngineLayout("model", "embedding", BYTES, (stored,))
    named = NamedLayout("given", replace(layout, outside=outside_sha256(a, layout)))
    first, second = (write_source(tmp_path / f"{i}.safetensors", weights(i, transposed)) for i in (1, 2))
    refit_file(a, named, Sources(second), "refit", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == b.read_bytes()
    refit_file(a, named, Sources(first), "engine", tmp_path / "own.bin")
    assert (tmp_path / "own.bin").read_bytes() == a.read_bytes()
    opened, _ = open_assigned(named.layout, second, None)
    assert verify_engine(b, opened, "refit").faults == []
    nameless = NamedLayout("given", layout)
    refit_file(a, nameless, Sources(second, first), "refit", tmp_path / "confirmed.bin")
