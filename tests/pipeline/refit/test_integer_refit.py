"""Integer engines: new weights in an old engine are what a compile of them gives; the ways of choosing scales."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from layouts.encoding import encode_rows
from layouts.entry_codecs import entry_codec
from layouts.integers import integer_codec
from layouts.stored import EngineLayout
from layouts.view import read_encoded, read_tensor, write_tensor
from pipeline.axmodel.walk import walk_engine
from pipeline.checkpoint.noise import NoiseCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, Float32
from pipeline.container.blob import read_blob
from pipeline.engineset.names import engine_file
from pipeline.errors import NotFiniteError, ToolchainError, VerifyError
from pipeline.model import ModelConfig
from pipeline.refit.choose import ScaleMode
from pipeline.refit.plan import plan_engine, read_assigned
from pipeline.refit.refit import refit_engine
from pipeline.refit.refitter import EngineRefitter
from pipeline.refit.report import EngineReport
from pipeline.toolchain.kinds import KINDS, LAYER
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.reference import compile_model, engine_layout
from tests.helpers.engines import overwrite
from tests.helpers.tiny import tiny_config

CONFIG = tiny_config(
    "llama",
    num_hidden_layers=1,
    hidden_size=255,
    intermediate_size=257,
    num_attention_heads=1,
    vocab_size=33,
    head_dim=36,
)
UP = "mlp.up_proj.weight"
SHORT = {"kv_cache_len": 16, "prefill_len": 8, "corrections": 0.0}
FLAGS = {
    "s8": {"weight_type": "s8", "post_weight_type": "s8"},
    "s8-127.5": {"weight_type": "s8", "scale_rule": "row/127.5", "layout_seed": 5},
    "s8-group": {"weight_type": "s8", "scale_rule": "group/127", "layout_seed": 6, "post_weight_type": "s8"},
    "s8-folded": {"weight_type": "s8", "fold_norms": True, "post_weight_type": "s8", "layout_seed": 7},
    "s4": {"weight_type": "s4", "post_weight_type": "s8"},
    "s4-fp16-folded": {"weight_type": "s4", "scale_type": "fp16", "fold_norms": True, "layout_seed": 8},
}


class Changed(NoiseCheckpoint):
    """Noise whose weights of one tensor are multiplied row by row."""

    def __init__(self, config: ModelConfig, seed: int, name: str, factors: dict[int, float]) -> None:
        super().__init__(config, seed)
        self._changed, self._factors = name, factors

    def read(self, name: str, rows: slice | None = None) -> Float32:
        values = super().read(name, rows)
        if name == self._changed:
            first, _, _ = (rows or slice(None)).indices(self.shape(name)[0])
            for row, factor in self._factors.items():
                if 0 <= row - first < len(values):
                    values[row - first] *= np.float32(factor)
        return values


def options(kind: str, **others: object) -> CompileOptions:
    return CompileOptions(**(SHORT | FLAGS[kind] | others))


@cache
def layout_of(options: CompileOptions, kind: str) -> EngineLayout:
    return engine_layout(CONFIG, options, kind)


def refit(
    template: Path, options: CompileOptions, kind: str, source: Checkpoint, output: Path, scales: ScaleMode = "refit"
) -> tuple[EngineReport, bytes]:
    """The kind's engine of `template` with the source's weights: report and file."""
    name = engine_file(CONFIG, options.prefill_len, kind)
    plan = plan_engine(CONFIG, kind, folded=options.folds(kind))
    report = refit_engine(template / name, layout_of(options, kind), plan, source, output / name, scales)
    return report, (output / name).read_bytes()


@pytest.mark.parametrize("flags", FLAGS)
def test_refit_gives_what_a_compile_gives(tmp_path: Path, flags: str) -> None:
    """The template has corrections, whose traces must go; every byte of every engine is compared."""
    template, fresh, output = (tmp_path / name for name in ("template", "fresh", "output"))
    compile_model(NoiseCheckpoint(CONFIG, 1), template, options(flags, corrections=1.0))
    compile_model(NoiseCheckpoint(CONFIG, 2), fresh, options(flags))
    output.mkdir()
    for kind in KINDS:
        report, data = refit(template, options(flags), kind, NoiseCheckpoint(CONFIG, 2), output)
        assert data == (fresh / engine_file(CONFIG, 8, kind)).read_bytes()
        assert all(tensor.clipped == tensor.corrected_kept == 0 for tensor in report.tensors.values())


def test_report_says_what_was_done(tmp_path: Path) -> None:
    compile_model(NoiseCheckpoint(CONFIG, 1), tmp_path, options("s8-folded"))
    (tmp_path / "out").mkdir()
    report, _ = refit(tmp_path, options("s8-folded"), LAYER, NoiseCheckpoint(CONFIG, 2), tmp_path / "out")
    up, down = report.tensors[UP], report.tensors["mlp.down_proj.weight"]
    assert (up.codec, up.scales, up.elements) == ("s8", "refit", 257 * 255)
    assert up.sources == (f"model.layers.0.{UP}", "model.layers.0.post_attention_layernorm.weight")
    assert down.sources == ("model.layers.0.mlp.down_proj.weight",)
    assert 0 < up.max_error <= 0.51 * 1.25 / np.sqrt(255) / 127
    assert "post_attention_layernorm.weight" not in report.tensors


def test_search_has_less_error_and_clips(tmp_path: Path) -> None:
    flags, source = options("s4"), NoiseCheckpoint(CONFIG, 2)
    compile_model(NoiseCheckpoint(CONFIG, 1), tmp_path, flags)
    stored, wanted = layout_of(flags, LAYER)[UP], source.read(f"model.layers.0.{UP}")
    errors, clipped = {}, {}
    for mode in ("refit", "search"):
        (tmp_path / mode).mkdir()
        report, _ = refit(tmp_path, flags, LAYER, source, tmp_path / mode, mode)
        held = read_tensor(read_blob(tmp_path / mode / engine_file(CONFIG, 8, LAYER)), stored)
        errors[mode], clipped[mode] = np.square(held.astype(float) - wanted).sum(), report.tensors[UP].clipped
    assert errors["search"] < errors["refit"]
    assert clipped["search"] > clipped["refit"] == 0


@pytest.fixture(scope="module", params=["s8", "s8-group", "s4"])
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompileOptions]:
    """A template of weights that are known, with corrections where the codec has any."""
    directory, flags = tmp_path_factory.mktemp("known"), options(request.param, corrections=1.0)
    compile_model(NoiseCheckpoint(CONFIG, 1), directory, flags)
    return directory, flags


def test_engine_mode_keeps_the_engine_for_its_own_weights(known: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    template, flags = known
    kept = 0
    for kind in KINDS:
        report, data = refit(template, flags, kind, NoiseCheckpoint(CONFIG, 1), tmp_path, "engine")
        assert data == (template / engine_file(CONFIG, 8, kind)).read_bytes()
        kept += sum(tensor.corrected_kept for tensor in report.tensors.values())
        assert {tensor.clipped for tensor in report.tensors.values()} == {0}
    assert kept > 0  # of the head at least


def test_engine_mode_keeps_scales_and_near_integers_and_counts_what_clips(
    known: tuple[Path, CompileOptions], tmp_path: Path
) -> None:
    template, flags = known
    name = f"model.layers.0.{UP}"
    source = Changed(CONFIG, 1, name, {0: 3.0, 40: 1.5, 256: -1.01})
    report, _ = refit(template, flags, LAYER, source, tmp_path, "engine")
    stored, file = layout_of(flags, LAYER)[UP], engine_file(CONFIG, 8, LAYER)
    before, after = (read_encoded(read_blob(folder / file), stored) for folder in (template, tmp_path))
    assert before.entries is not None and stored.scales is not None
    assert np.array_equal(before.entries, after.entries)
    new = encode_rows(stored, source.read(name), given=entry_codec(stored.scales.entry).decode(before.entries))
    kind = integer_codec(stored.codec)
    old, fresh, held = (kind.from_raw(raw).astype(int) for raw in (before.raw, new.raw, after.raw))
    assert np.array_equal(held, np.where(abs(old - fresh) <= 1, old, fresh))
    assert (report.tensors[UP].clipped, report.tensors[UP].scales) == (new.clipped, "engine")
    assert new.clipped > 0
    assert report.tensors[UP].corrected_kept == np.count_nonzero((held == old) & (old != fresh))
    assert len(report.tensors[UP].stored_sha256) == 64


BROKEN = {
    "zero": (0, "is 0, infinite or no number"),
    "infinite": (0x7F800000, "is 0, infinite or no number"),
    "no number": (0x7FC0_7FC0, "is 0, infinite or no number"),
    "negative": (0xBC00_BC00, "is 0, infinite or no number"),
    "two halves": (0x3C00_3F80, "contradicts itself"),
    "reciprocal beyond": (0x0001_7F00, "contradicts itself"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_entries_that_cannot_be_kept_name_row_and_group(tmp_path: Path, fault: str) -> None:
    flags = options("s8-group")
    compile_model(NoiseCheckpoint(CONFIG, 1), tmp_path, flags)
    stored, path = layout_of(flags, LAYER)[UP], tmp_path / engine_file(CONFIG, 8, LAYER)
    word, reason = BROKEN[fault]
    weights = walk_engine(path).weights
    blob = np.memmap(path, np.uint8, "r+", weights.offset, (weights.size,))
    own = read_encoded(blob, stored)
    assert own.entries is not None
    own.entries[201, 0] = word
    write_tensor(blob, stored, own)
    blob.flush()
    (tmp_path / "out").mkdir()
    with pytest.raises(ToolchainError, match=rf"up_proj\.weight\[201\], scale entry of group 0: {reason}") as caught:
        refit(tmp_path, flags, LAYER, NoiseCheckpoint(CONFIG, 2), tmp_path / "out", "engine")
    assert caught.value.file == path
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("flags", "factor"), [("s8-group", 1e-38), ("s4-fp16-folded", 1e8), ("s8", 2.0**-125)])
def test_scale_that_no_entry_can_hold_names_the_source(tmp_path: Path, flags: str, factor: float) -> None:
    compile_model(NoiseCheckpoint(CONFIG, 1), tmp_path, options(flags))
    source = Changed(CONFIG, 2, f"model.layers.0.{UP}", {201: factor})
    reason = (
        r"noise-2: model\.layers\.0\.mlp\.up_proj\.weight: row 201, group 0: the scale entry would be 0 or infinite"
    )
    (tmp_path / "out").mkdir()
    with pytest.raises(NotFiniteError, match=reason):
        refit(tmp_path, options(flags), LAYER, source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_folded_gain_is_multiplied_before_rounding(tmp_path: Path) -> None:
    flags, source = options("s4-fp16-folded"), NoiseCheckpoint(CONFIG, 2)
    plan = plan_engine(CONFIG, LAYER, folded=True)
    (assignment,) = (item for item in plan.assignments if item.tensor == UP)
    gain = source.read("model.layers.0.post_attention_layernorm.weight")
    expected = source.read(f"model.layers.0.{UP}") * gain
    assert expected.dtype == np.float32
    assert np.array_equal(read_assigned(source, assignment, slice(0, 257)), expected)
    assert flags.folds(LAYER)


def test_stray_half_of_a_byte_is_found(known: tuple[Path, CompileOptions], tmp_path: Path) -> None:
    """The last column of 255 shares its byte with a place that no element has."""
    directory, flags = known
    template, layout = directory / engine_file(CONFIG, 8, LAYER), engine_layout(CONFIG, flags, LAYER)
    address = int(layout[UP].copies[0].planes[0].addresses(0, 1)[0, -1])
    at, half = walk_engine(template).weights.offset + address // 8, 0x10 if address % 8 == 0 else 0x01
    noise = NoiseCheckpoint(CONFIG, 2)
    with (
        pytest.raises(VerifyError, match="outside the planned spans") as caught,
        EngineRefitter(template, layout, tmp_path / "out") as refitter,
    ):
        for item in plan_engine(CONFIG, LAYER).assignments:
            refitter.set(item.tensor, read_assigned(noise, item, slice(None)))
        (beside,) = tmp_path.iterdir()
        overwrite(beside, at, bytes([beside.read_bytes()[at] ^ half]))
        refitter.commit()
    assert caught.value.offset == at
    assert list(tmp_path.iterdir()) == []
