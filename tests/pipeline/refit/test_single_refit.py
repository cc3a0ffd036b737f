"""One engine of any network: patching is compiling, confirming comes first, and what is wrong is said at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layouts.algebra import Digit, Layout, Piece
from layouts.errors import DecodeRefused
from layouts.sidecar import write_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from pipeline.container.blob import weight_blob, weight_parts
from pipeline.errors import ContainerError, MismatchError, NotFiniteError
from pipeline.refit import confirm
from pipeline.refit.outside import outside_sha256
from pipeline.refit.refused import PlanRefusedError
from pipeline.refit.single_refit import NamedLayout, Refitted, Sources, layout_for, open_assigned, refit_file
from pipeline.refit.single_verify import verify_engine
from tests.helpers.engines import overwrite
from tests.helpers.generations import BUILDS
from tests.helpers.networks import SHAPES, WIDE, Weights, compiled, network_layout, random_weights, write_source
from tests.helpers.rknn_file import CONSTANT, FP16, Graph, Tensor, write_rknn

A, B = 1, 2
BYTES_BETWEEN = WIDE + 11


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return compiled(tmp_path / "a.axmodel", random_weights(A))


@pytest.fixture
def layout(engine: Path) -> EngineLayout:
    return network_layout(engine)


def put(
    engine: Path, layout: EngineLayout, weights: Weights, output: Path, base: Path | None = None, scales: str = "refit"
) -> Refitted:
    source = write_source(output.with_suffix(".safetensors"), weights)
    return refit_file(engine, NamedLayout("given", layout), Sources(source, base), scales, output)


@pytest.mark.parametrize("generation", BUILDS)
@pytest.mark.parametrize("seed", range(3, 6))
def test_patch_is_compile(tmp_path: Path, generation: str, seed: int) -> None:
    engine = compiled(tmp_path / "a.axmodel", random_weights(A), generation, seed)
    fresh = compiled(tmp_path / "b.axmodel", random_weights(seed), generation, seed)
    put(engine, network_layout(engine), random_weights(seed), tmp_path / "out.axmodel")
    assert (tmp_path / "out.axmodel").read_bytes() == fresh.read_bytes()


@pytest.mark.parametrize("scales", ["refit", "engine"])
def test_own_weights_are_the_identity(engine: Path, layout: EngineLayout, tmp_path: Path, scales: str) -> None:
    done = put(engine, layout, random_weights(A), tmp_path / "out.axmodel", scales=scales)
    assert (tmp_path / "out.axmodel").read_bytes() == engine.read_bytes()
    assert done.report.changed_bytes == 0


def test_a_then_b_then_a_is_a_and_every_one_is_the_same_template(
    engine: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    put(engine, layout, random_weights(B), tmp_path / "b.axmodel")
    assert network_layout(tmp_path / "b.axmodel").outside == layout.outside
    put(tmp_path / "b.axmodel", layout, random_weights(A), tmp_path / "again.axmodel")
    assert (tmp_path / "b.axmodel").read_bytes() != engine.read_bytes() == (tmp_path / "again.axmodel").read_bytes()


def test_rows_of_zeros_have_the_scale_of_the_rule(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    weights = random_weights(B)
    weights["wide"][2] = 0
    weights["wide_bias"][2] = 0
    done = put(engine, layout, weights, tmp_path / "out.axmodel")
    entry = (tmp_path / "out.axmodel").read_bytes()[weight_blob(engine).offset + WIDE + 80 + 12 :][:4]
    assert np.frombuffer(entry, "<f4")[0] == np.float32(float(np.float32(1e-10)) * 0.00037)
    assert done.report.tensors["wide"].max_error < 0.02


def test_report_counts_what_is_absent_and_names_the_bias(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    report = put(engine, layout, random_weights(B), tmp_path / "out.axmodel").report
    wide = report.tensors["wide"]
    assert (wide.elements, wide.absent, wide.sources) == (90, 30, ("wide", "wide_bias"))
    assert 0 < wide.max_error <= 0.51 * np.abs(random_weights(B)["wide"]).max() / 127
    assert report.tensors["narrow"].copies == ("decode", "prefill")


def test_engine_of_another_version_is_refused_or_confirmed_by_its_weights(
    engine: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    """Same size, same layout, other bytes between: only the weights that it was compiled from can tell."""
    other = compiled(tmp_path / "other.axmodel", random_weights(A), version=9)
    with pytest.raises(MismatchError, match=r"other\.axmodel: outside the weights: the layout is not confirmed"):
        put(other, layout, random_weights(B), tmp_path / "out.axmodel")
    base = write_source(tmp_path / "base.safetensors", random_weights(A))
    done = put(other, layout, random_weights(B), tmp_path / "out.axmodel", base)
    assert done.confirmed == f"the layout predicts the engine from {base}"
    assert (tmp_path / "out.axmodel").read_bytes() == compiled(
        tmp_path / "b.axmodel", random_weights(B), version=9
    ).read_bytes()


@pytest.mark.parametrize("name", SHAPES)
def test_base_that_is_not_what_was_compiled_is_refused(
    engine: Path, layout: EngineLayout, tmp_path: Path, name: str
) -> None:
    wrong = random_weights(A)
    wrong[name].flat[-1] += 0.5
    base = write_source(tmp_path / "base.safetensors", wrong)
    nameless = replace(layout, outside="")
    with pytest.raises(DecodeRefused, match=name.removesuffix("_bias")) as caught:
        put(engine, nameless, random_weights(B), tmp_path / "out.axmodel", base)
    assert caught.value.file == engine
    assert not (tmp_path / "out.axmodel").exists()


def test_nameless_layout_without_a_base_is_refused(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="no base weights are given"):
        put(engine, replace(layout, outside=""), random_weights(B), tmp_path / "out.axmodel")


def test_all_faults_of_a_source_are_said_at_once(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    weights = random_weights(B)
    weights["wide"] = np.ascontiguousarray(weights["wide"].transpose(0, 2, 1))
    weights["wide_bias"] = weights["wide_bias"][:5].copy()
    del weights["lstm"]
    with pytest.raises(PlanRefusedError) as caught:
        put(engine, layout, weights, tmp_path / "out.axmodel")
    source = tmp_path / "out.safetensors"
    assert str(caught.value).splitlines() == [
        f"{source}: wide: the engine has [6, 5, 3], the source has [6, 3, 5]",
        f"{source}: wide_bias: the engine has [6], the source has [5]",
        f"{source}: lstm: missing, the engine needs it as [4, 8]",
    ]


def test_what_the_engine_has_no_place_for_is_listed(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    weights = random_weights(B) | {"head": np.ones((2, 2), np.float32), "head_bias": np.ones(2, np.float32)}
    assert sorted(put(engine, layout, weights, tmp_path / "out.axmodel").unused) == ["head", "head_bias"]


def test_with_a_base_only_what_moved_is_listed(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    others = {"same": np.ones((2, 2), np.float32), "moved": np.ones(2, np.float32)}
    base = write_source(tmp_path / "base.safetensors", random_weights(A) | others)
    weights = random_weights(B) | others | {"moved": np.zeros(2, np.float32), "new": np.ones(1, np.float32)}
    assert sorted(put(engine, layout, weights, tmp_path / "out.axmodel", base).unused) == ["moved", "new"]


def test_vector_may_be_one_row(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    weights = random_weights(B)
    put(engine, layout, weights, tmp_path / "flat.axmodel")
    put(engine, layout, weights | {"lstm_bias": weights["lstm_bias"][None]}, tmp_path / "row.axmodel")
    assert (tmp_path / "flat.axmodel").read_bytes() == (tmp_path / "row.axmodel").read_bytes()


def test_values_that_do_not_fit_are_named_as_the_source_has_them(
    engine: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    weights = random_weights(B)
    weights["lstm_bias"][3] = 1e6
    with pytest.raises(NotFiniteError, match=r"out\.safetensors: lstm_bias: element \[3\] does not fit fp16"):
        put(engine, layout, weights, tmp_path / "out.axmodel")
    weights = random_weights(B)
    weights["wide_bias"][4] = 1e9
    with pytest.raises(NotFiniteError, match=r"out\.safetensors: wide_bias: row 4: bias entry does not fit in s8"):
        put(engine, layout, weights, tmp_path / "out.axmodel")
    weights = random_weights(B)
    weights["wide"][5] = 1e-44
    with pytest.raises(NotFiniteError, match=r"out\.safetensors: wide: row 5, group 0: the scale entry"):
        put(engine, layout, weights, tmp_path / "out.axmodel")
    assert not list(tmp_path.glob("*out.axmodel*"))


def test_engine_itself_is_no_output(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    before = engine.read_bytes()
    with pytest.raises(MismatchError, match="the output is the engine itself"):
        put(engine, layout, random_weights(B), engine)
    assert engine.read_bytes() == before


def test_without_a_layout_an_unknown_engine_is_refused(engine: Path) -> None:
    with pytest.raises(MismatchError, match="none of the known layouts is of this engine"):
        layout_for(engine, None)


def test_known_layout_that_names_the_engine_is_taken(
    engine: Path, layout: EngineLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three of one size, one for another version and one without a name among them; files that are no engine have none."""
    monkeypatch.setattr(confirm, "files", lambda _: tmp_path)
    other = compiled(tmp_path / "other.axmodel", random_weights(A), version=9)
    known = {"a": replace(layout, outside=""), "b": network_layout(other), "c": layout}
    for name, item in known.items():
        write_layout(tmp_path / "known" / f"{name}.layout.toml", item)
    assert layout_for(engine, None) == NamedLayout("c.layout.toml", layout)
    put(engine, layout, random_weights(B), tmp_path / "out.axmodel")
    assert layout_for(tmp_path / "out.axmodel", None).name == "c.layout.toml"
    (tmp_path / "broken.axmodel").write_bytes(engine.read_bytes()[:100])
    assert confirm.known_layout(tmp_path / "broken.axmodel", other) == ("b.layout.toml", known["b"])
    with pytest.raises(ContainerError):
        layout_for(tmp_path / "broken.axmodel", None)


def test_verify_names_every_tensor_and_whatever_else_changed(
    engine: Path, layout: EngineLayout, tmp_path: Path
) -> None:
    output = tmp_path / "out.axmodel"
    put(engine, layout, random_weights(B), output)
    weights, _ = open_assigned(layout, output.with_suffix(".safetensors"), None)
    good = verify_engine(output, weights, "refit", engine)
    assert (good.faults, good.elements) == ([], 90 + 24 + 32 + 4)
    assert verify_engine(output, weights, "refit").faults == []
    start = weight_blob(output).offset
    spoilt = {"wide[1, 6]": WIDE + 41, "wide[0] only copy, bias entry": WIDE + 16, "narrow[2, 0] prefill copy": 400}
    for place, at in spoilt.items():
        damaged = tmp_path / "damaged.axmodel"
        damaged.write_bytes(output.read_bytes())
        overwrite(damaged, start + at, bytes([output.read_bytes()[start + at] ^ 1]))
        (fault,) = verify_engine(damaged, weights, "refit", engine).faults
        assert fault.startswith(f"{damaged}: {place}")
    overwrite(damaged, start + BYTES_BETWEEN, bytes([output.read_bytes()[start + BYTES_BETWEEN] ^ 1]))
    faults = verify_engine(damaged, weights, "refit", engine).faults
    assert len(faults) == 2
    assert f"byte {start + BYTES_BETWEEN}: a byte outside the planned spans changed" in faults[1]
    assert "what is outside the weights" in verify_engine(damaged, weights, "refit").faults[1]


def test_verify_without_anything_to_compare_the_rest_with(engine: Path, layout: EngineLayout, tmp_path: Path) -> None:
    source = write_source(tmp_path / "a.safetensors", random_weights(A))
    weights, _ = open_assigned(replace(layout, outside=""), source, None)
    with pytest.raises(MismatchError, match="a template is needed"):
        verify_engine(engine, weights, "refit")
    assert verify_engine(engine, weights, "refit", engine).faults == []


def test_second_container_is_refitted_alike(tmp_path: Path) -> None:
    """fp16 columns of a constant in a `.rknn`: what is written for other weights from the start."""
    files = {}
    for seed in (A, B):
        values = random_weights(seed)["lstm"]
        constant = Tensor("w", FP16, CONSTANT, [4, 8], [8, 4], np.ascontiguousarray(values.T).astype("<f2").tobytes())
        files[seed] = write_rknn(tmp_path / f"{seed}.rknn", Graph([constant]))
    (part,) = weight_parts(files[A])
    blob = weight_blob(files[A])
    place = Layout((4, 8), 8 * (part.offset - blob.offset), (Digit(4, 16),), (Digit(8, 64),), 16)
    stored = StoredTensor("lstm", (4, 8), "fp16", (Copy("only", (Plane((Piece(0, 0, place),)),)),))
    layout = EngineLayout("model", blob.name, blob.size, (stored,), blob.offset)
    layout = replace(layout, outside=outside_sha256(files[A], layout))
    put(files[A], layout, {"lstm": random_weights(B)["lstm"]}, tmp_path / "out.rknn")
    assert (tmp_path / "out.rknn").read_bytes() == files[B].read_bytes()
