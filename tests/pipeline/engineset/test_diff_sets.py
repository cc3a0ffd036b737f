"""`engineset diff` of two sets: what only one has, manifests, and engines by tensor with the layouts that the sets carry."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from layouts.sidecar import read_layout
from pipeline.axmodel.walk import walk_engine
from pipeline.engineset.diff import FieldChange, diff_sets
from tests.helpers.engines import overwrite
from tests.helpers.sets import build_tiny, engineset

LAYER = "qwen2_p8_l1_together.axmodel"
EMBEDDING = "model.embed_tokens.weight.bfloat16.bin"
NORM = "input_layernorm.weight"


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Weights 1, weights 2, and weights 1 elsewhere in the engines."""
    folder = tmp_path_factory.mktemp("diff")
    one, two = (build_tiny(folder / str(seed), seed=seed).set.resolve() for seed in (1, 2))
    return one, two, build_tiny(folder / "moved", seed=1, layout_seed=5).set.resolve()


def test_set_is_equal_to_a_copy_of_it(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sets[0], tmp_path / "copy")
    assert not diff_sets(sets[0], tmp_path / "copy").differs
    same = engineset("diff", sets[0], tmp_path / "copy")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")


def test_other_weights_are_told_by_tensor(sets: tuple[Path, Path, Path]) -> None:
    found = diff_sets(*sets[:2])
    assert (found.only_a, found.only_b) == ([], [])
    fields = {change.field for change in found.manifest}
    assert {"identity", "source.path"} <= fields
    assert not fields & {"template.version", "scales", "model.hidden_size"}
    engines = {name for name in found.files if name.endswith((".axmodel", ".bin"))}
    assert LAYER in engines
    for name in engines:
        assert found.files[name].tensors
        assert not found.files[name].stray.differs
    norm = [change for change in found.files[LAYER].tensors if change.tensor == NORM]
    assert all(change.changed for change in norm)


def test_one_changed_element_is_named(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sets[0], tmp_path / "copy")
    stored = read_layout(sets[0] / "layer.layout.toml")[NORM]
    address = int(stored.copies[0].planes[0].addresses(0, 1)[0, 3]) // 8
    path = tmp_path / "copy" / LAYER
    at = walk_engine(path).weights.offset + address
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 1]))
    other = next(iter(walk_engine(path).microcode())).offset
    overwrite(path, other, bytes([path.read_bytes()[other] ^ 1]))
    found = diff_sets(sets[0], tmp_path / "copy")
    assert (found.manifest, list(found.files)) == ([], [LAYER])
    (change,) = (item for item in found.files[LAYER].tensors if item.differs)
    assert (change.tensor, change.changed, change.first, change.steps) == (NORM, 1, (0, 3), 1)
    assert [(part.a, part.bytes) for part in found.files[LAYER].stray.ranges] == [(other, 1)]
    shown = engineset("diff", sets[0], tmp_path / "copy")
    assert shown.returncode == 1
    assert shown.stdout.splitlines()[0] == LAYER
    assert any(line.split()[0] == NORM and "1 of " in line for line in shown.stdout.splitlines()[1:])
    report = json.loads(engineset("diff", sets[0], tmp_path / "copy", "--json").stdout)
    assert list(report["files"]) == [LAYER]


def test_damaged_engine_is_compared_byte_by_byte(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sets[0], tmp_path / "copy")
    with (tmp_path / "copy" / LAYER).open("r+b") as file:
        file.truncate(100)
    found = diff_sets(sets[0], tmp_path / "copy").files[LAYER]
    assert (found.tensors, found.stray.ranges) == ([], [])
    assert [region.sizes[1] for region in found.stray.sizes] == [100]


def test_weights_at_other_places_are_compared_as_bytes(sets: tuple[Path, Path, Path]) -> None:
    found = diff_sets(sets[0], sets[2])
    assert FieldChange("template.options.layout_seed", 3, 5) in found.manifest
    assert found.files[LAYER].tensors == []
    assert found.files[LAYER].stray.differs
    assert "layer.layout.toml" in found.files


def test_files_that_only_one_has(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sets[0], tmp_path / "copy")
    (tmp_path / "copy" / LAYER).unlink()
    (tmp_path / "copy" / "extra.txt").write_text("x")
    found = diff_sets(sets[0], tmp_path / "copy")
    assert (found.only_a, found.only_b, found.files, found.differs) == ([LAYER], ["extra.txt"], {}, True)


def test_directories_without_manifests_take_a_layout(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    for name, source in zip("ab", sets, strict=False):
        (tmp_path / name).mkdir()
        for file in (LAYER, EMBEDDING):
            shutil.copy(source / file, tmp_path / name)
    layout = read_layout(sets[0] / "layer.layout.toml")
    found = diff_sets(tmp_path / "a", tmp_path / "b", layout)
    assert found.manifest == []
    assert found.files[LAYER].tensors
    assert found.files[EMBEDDING].tensors == []


def test_manifest_that_was_changed_is_not_compared(sets: tuple[Path, Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sets[0], tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"refit"', '"search"'))
    result = engineset("diff", sets[0], tmp_path / "copy")
    assert result.returncode == 2
    assert "changed since it was written" in result.stderr
