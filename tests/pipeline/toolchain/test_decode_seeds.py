"""Twenty layout seeds: the decoded layout is the compiler's own map, and microcode has no part in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from layouts.sidecar import dump_layout
from pipeline.errors import DecodeRefused
from pipeline.toolchain.decode import decode_builds
from pipeline.toolchain.markers import marker_checkpoint
from tests.helpers.engines import (
    KINDS,
    LAYER,
    Case,
    build_markers,
    engines_of,
    overwrite_microcode,
    places,
    true_layouts,
)

CASES = [Case(seed) for seed in range(20)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_decoded_layout_is_the_true_map_without_microcode(tmp_path: Path, case: Case) -> None:
    builds = build_markers(tmp_path, case)
    true = true_layouts(marker_checkpoint(case.plan, case.plan.confirm), case.options)
    before = {}
    for kind in KINDS:
        layout = decode_builds(case.plan, kind, engines_of(builds, case, kind))
        found, expected = places(layout), places(true[kind])
        assert found.keys() == expected.keys()
        for key, addresses in expected.items():
            assert np.array_equal(found[key], addresses), key
        assert {t.name: t.codec for t in layout.tensors} == {t.name: t.codec for t in true[kind].tensors}
        assert layout.blob_bytes == true[kind].blob_bytes
        before[kind] = dump_layout(layout)
    for build, directory in enumerate(builds):
        for engine in directory.glob("*.axmodel"):
            overwrite_microcode(engine, 100 * case.seed + build)
    for kind, text in before.items():
        assert dump_layout(decode_builds(case.plan, kind, engines_of(builds, case, kind))) == text


def test_cases_cover_what_they_are_to_cover() -> None:
    seen = {(case.config.architecture, case.config.head_dim, case.storage) for case in CASES}
    assert len({arch for arch, _, _ in seen}) == 3
    assert {head_dim for _, head_dim, _ in seen} == {48, 64}
    assert {storage for _, _, storage in seen} == {"bf16", "truncated", "fp32"}
    assert {case.config.tie_word_embeddings for case in CASES} == {False, True}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, list[Path]]:
    case = Case(7)
    return case, build_markers(tmp_path_factory.mktemp("markers"), case)


def test_refusal_names_the_engine_file(built: tuple[Case, list[Path]]) -> None:
    case, builds = built
    engines = engines_of(builds, case, LAYER)
    with pytest.raises(DecodeRefused) as caught:
        decode_builds(case.plan, LAYER, [engines[0], engines[0], engines[2]])
    assert str(caught.value).startswith(str(engines[0]))
    assert "self_attn.q_proj.weight" in str(caught.value)


def test_two_builds_are_not_enough_to_confirm(built: tuple[Case, list[Path]]) -> None:
    case, builds = built
    with pytest.raises(DecodeRefused, match=r"expected 3, found 2"):
        decode_builds(case.plan, LAYER, engines_of(builds[:2], case, LAYER))


def test_markers_of_another_shape_are_refused(built: tuple[Case, list[Path]], tmp_path: Path) -> None:
    case, _ = built
    other = Case(8)
    builds = build_markers(tmp_path, other)
    with pytest.raises(DecodeRefused):
        decode_builds(case.plan, LAYER, engines_of(builds, other, LAYER))
