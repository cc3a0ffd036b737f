"""The refitter: list, prototype, set, missing, unused, commit; all or nothing, and proven."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from layouts.encoding import Encoded
from layouts.stored import EngineLayout
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Float32
from pipeline.errors import InternalError, MismatchError, NotFiniteError, VerifyError
from pipeline.files import file_sha256
from pipeline.refit import refitter as refitter_module
from pipeline.refit.plan import plan_engine
from pipeline.refit.refit import refit_engine
from pipeline.refit.refitter import EngineRefitter
from pipeline.toolchain.reference import compile_model
from tests.helpers.engines import Case, engines_of, overwrite, stored_rows, true_layouts

CASE = Case(19)  # qwen2, bf16, second copies, odd bytes
TEMPLATE_NOISE = NoiseCheckpoint(CASE.config, 1)
Q, UP, NORM, BIAS = (
    "self_attn.q_proj.weight",
    "mlp.up_proj.weight",
    "input_layernorm.weight",
    "self_attn.k_proj.bias",
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("template")
    compile_model(TEMPLATE_NOISE, directory, CASE.options)
    (engine,) = engines_of([directory], CASE, "layer")
    engine.chmod(0o444)
    return engine


@pytest.fixture(scope="module")
def layout() -> EngineLayout:
    return true_layouts(TEMPLATE_NOISE, CASE.options)["layer"]


def weights(seed: int) -> dict[str, Float32]:
    noise = NoiseCheckpoint(CASE.config, seed)
    return {item.tensor: noise.read(item.sources[0]) for item in plan_engine(CASE.config, "layer").assignments}


def refit(template: Path, layout: EngineLayout, output: Path, seed: int) -> Path:
    refit_engine(template, layout, plan_engine(CASE.config, "layer"), NoiseCheckpoint(CASE.config, seed), output)
    return output


def set_all(refitter: EngineRefitter, seed: int, but: tuple[str, ...] = ()) -> None:
    for name, values in weights(seed).items():
        if name not in but:
            refitter.set(name, values)


def test_weights_and_prototypes_are_the_layouts(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    with EngineRefitter(template, layout, tmp_path / "out") as refitter:
        assert set(refitter.weights()) == set(weights(1))
        prototype = refitter.prototype(Q)
        assert (prototype.shape, prototype.codec) == ((240, 320), "bf16")
        assert refitter.prototype(NORM).shape == (1, 320)
        copied = {stored.name: tuple(copy.name for copy in stored.copies) for stored in layout.tensors}
        assert {name: refitter.prototype(name).copies for name in refitter.weights()} == copied
        assert ("decode", "prefill") in copied.values()
        assert refitter.missing() == refitter.weights()
        assert refitter.unused([Q, "lm_head.weight", NORM, "rotary.inv_freq"]) == ["lm_head.weight", "rotary.inv_freq"]
    assert list(tmp_path.iterdir()) == []


def test_commit_writes_every_copy_and_nothing_else(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    before = file_sha256(template)
    with EngineRefitter(template, layout, tmp_path / "out.axmodel") as refitter:
        set_all(refitter, 2)
        report = refitter.commit()
    assert file_sha256(template) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.axmodel"]
    owned = np.zeros(template.stat().st_size, np.bool_)
    start = walk_engine(template).weights.offset
    for stored in layout.tensors:
        values = weights(2)[stored.name].reshape(stored.shape).astype(ml_dtypes.bfloat16).view(np.uint16)
        for copy in stored.copies:
            for rows, found in stored_rows(tmp_path / "out.axmodel", stored, copy):
                assert np.array_equal(found, values[rows])
                at = start + copy.planes[0].addresses(rows.start, rows.stop) // 8
                owned[at] = owned[at + 1] = True
    old, new = np.fromfile(template, np.uint8), np.fromfile(tmp_path / "out.axmodel", np.uint8)
    assert not (old != new)[~owned].any()
    assert report.planned_bytes == np.count_nonzero(owned)
    assert report.changed_bytes == np.count_nonzero(old != new)
    assert report.tensors[Q].elements == 240 * 320
    error = np.abs(weights(2)[Q].astype(ml_dtypes.bfloat16).astype(np.float64) - weights(2)[Q]).max()
    assert report.tensors[Q].max_error == error
    assert report.tensors[Q].clipped == 0


def test_patched_engine_is_the_one_that_is_compiled(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    compile_model(NoiseCheckpoint(CASE.config, 2), tmp_path / "compiled", CASE.options)
    (compiled,) = engines_of([tmp_path / "compiled"], CASE, "layer")
    assert refit(template, layout, tmp_path / "a", 2).read_bytes() == compiled.read_bytes()


def test_own_noise_is_the_identity(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    assert refit(template, layout, tmp_path / "same", 1).read_bytes() == template.read_bytes()


def test_a_then_b_then_a_is_a(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    names = [tmp_path / f"{i}.axmodel" for i in range(3)]
    refit(template, layout, names[0], 2)
    refit(names[0], layout, names[1], 3)
    refit(names[1], layout, names[2], 2)
    assert names[1].read_bytes() != names[0].read_bytes() == names[2].read_bytes()


def test_rows_in_parts_and_out_of_order(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    whole = refit(template, layout, tmp_path / "whole", 2)
    up = weights(2)[UP]
    with EngineRefitter(template, layout, tmp_path / "parts") as refitter:
        set_all(refitter, 2, but=(UP,))
        refitter.set(UP, up[700:], 700)
        refitter.set(UP, up[:13])
        assert refitter.missing() == [UP]
        refitter.set(UP, np.zeros((0, 320), np.float32), 13)
        refitter.set(UP, up[12:699], 12)
        assert refitter.missing() == [UP]
        refitter.set(UP, up[699:700], 699)
        assert refitter.missing() == []
        refitter.commit()
    assert (tmp_path / "parts").read_bytes() == whole.read_bytes()


def test_commit_with_something_missing_names_it_and_leaves_nothing(
    template: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    with (
        pytest.raises(MismatchError, match=rf"not all weights are set: {Q}, {BIAS}|{BIAS}, {Q}"),
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
    ):
        set_all(refitter, 2, but=(Q, BIAS))
        refitter.set(Q, weights(2)[Q][:200])
        refitter.commit()
    assert list(tmp_path.iterdir()) == []


def test_failure_leaves_an_older_output_alone(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_bytes(b"older")
    with pytest.raises(MismatchError), EngineRefitter(template, layout, output) as refitter:
        refitter.commit()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"older"}


F32 = np.float32


@pytest.mark.parametrize(
    ("name", "values", "row", "reason"),
    [
        (Q, np.zeros((240, 321), F32), 0, r"expected float32 \[240, 320\], found float32 \[240, 321\]"),
        (Q, np.zeros((241, 320), F32), 0, r"found float32 \[241, 320\] from row 0"),
        (Q, np.zeros((40, 320), F32), 201, r"from row 201"),
        (Q, np.zeros((40, 320), F32), -1, r"from row -1"),
        (Q, np.zeros((240, 320), np.float64), 0, r"found float64"),
        (Q, np.zeros((240, 320), np.float16), 0, r"found float16"),
        (Q, np.zeros((240, 320), np.int32), 0, r"found int32"),
        (Q, np.zeros(240 * 320, F32), 0, r"found float32 \[76800\]"),
        (Q, np.zeros((1, 240, 320), F32), 0, r"\[1, 240, 320\]"),
        (Q, np.zeros((), F32), 0, r"found float32 \[\]"),
        (NORM, np.zeros(319, F32), 0, r"expected float32 \[1, 320\], found float32 \[319\]"),
        ("lm_head.weight", np.zeros((1000, 320), F32), 0, r"lm_head\.weight.*no such weight.*self_attn\.q_proj"),
    ],
)
def test_wrong_values_are_refused(
    template: Path, layout: EngineLayout, tmp_path: Path, name: str, values: Float32, row: int, reason: str
) -> None:
    with EngineRefitter(template, layout, tmp_path / "out") as refitter:
        with pytest.raises(MismatchError, match=reason) as caught:
            refitter.set(name, values, row)
        assert caught.value.file == template
        assert refitter.missing() == refitter.weights()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_name_their_element(
    template: Path, layout: EngineLayout, tmp_path: Path, bad: float
) -> None:
    values = weights(2)[Q][100:120].copy()
    values[7, 311] = bad
    with (
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
        pytest.raises(NotFiniteError, match=r"q_proj\.weight\[107, 311\]"),
    ):
        refitter.set(Q, values, 100)


def test_value_beyond_bf16_is_refused(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    values = weights(2)[NORM].copy()
    values[11] = np.finfo(np.float32).max
    with (
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
        pytest.raises(NotFiniteError, match=NORM),
    ):
        refitter.set(NORM, values)


def beside(directory: Path) -> Path:
    (found,) = directory.iterdir()
    return found


@pytest.mark.parametrize("place", ["head", "gap", "tail"])
def test_stray_byte_is_found_behind_its_back(template: Path, layout: EngineLayout, tmp_path: Path, place: str) -> None:
    blob = walk_engine(template).weights
    first = min(piece.extent[0] for stored in layout.tensors for piece in stored.layouts()) // 8
    offsets = {"head": 3, "gap": blob.offset + first - 1, "tail": template.stat().st_size - 1}
    at = offsets[place]
    with (
        pytest.raises(VerifyError, match="outside the planned spans") as caught,
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
    ):
        set_all(refitter, 2)
        overwrite(beside(tmp_path), at, bytes([template.read_bytes()[at] ^ 1]))
        refitter.commit()
    assert caught.value.offset == at
    assert list(tmp_path.iterdir()) == []


def test_growing_file_is_found(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    with (
        pytest.raises(VerifyError, match="size changed"),
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
    ):
        set_all(refitter, 2)
        with beside(tmp_path).open("ab") as file:
            file.write(b"x")
        refitter.commit()


def test_write_that_does_not_arrive_is_found(
    template: Path, layout: EngineLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = refitter_module.write_tensor

    def forgetful(blob, stored, encoded, row_start=0):
        spoilt = encoded.raw.copy()
        spoilt[17, 5] ^= 1
        honest(blob, stored, Encoded(spoilt), row_start)

    monkeypatch.setattr(refitter_module, "write_tensor", forgetful)
    with (
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
        pytest.raises(VerifyError, match=r"q_proj\.weight\[117, 5\] decode copy: reads back otherwise"),
    ):
        refitter.set(Q, weights(2)[Q][100:], 100)


def test_wrong_offset_inside_the_plan_is_found_by_reading_back(
    template: Path, layout: EngineLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that land in other rows stay inside the spans: only reading back tells."""
    honest = refitter_module.write_tensor
    monkeypatch.setattr(
        refitter_module,
        "write_tensor",
        lambda blob, stored, encoded, row_start=0: honest(blob, stored, Encoded(encoded.raw[::-1]), row_start),
    )
    with EngineRefitter(template, layout, tmp_path / "out") as refitter, pytest.raises(VerifyError, match=Q):
        refitter.set(Q, weights(2)[Q])


def test_template_is_opened_for_reading_only(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    stat = template.stat()
    refit(template, layout, tmp_path / "out", 2)
    after = template.stat()
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_ino) == (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    assert os.access(tmp_path / "out", os.W_OK)


def test_layout_of_another_engine(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    other = EngineLayout(layout.kind, layout.blob, layout.blob_bytes + 64, layout.tensors)
    with pytest.raises(MismatchError, match=rf"expected {layout.blob_bytes + 64} bytes, found {layout.blob_bytes}"):
        EngineRefitter(template, other, tmp_path / "out")


def test_use_outside_its_block_is_our_own_fault(template: Path, layout: EngineLayout, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="not open"):
        EngineRefitter(template, layout, tmp_path / "out").set(Q, weights(2)[Q])
    with EngineRefitter(template, layout, tmp_path / "out") as refitter:
        set_all(refitter, 2)
    with pytest.raises(InternalError, match="not open"):
        refitter.commit()
    assert list(tmp_path.iterdir()) == []
