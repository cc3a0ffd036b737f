from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError, MissingFileError
from pipeline.evaluate.material import Material, cut, default_positions, english_material, read_text

DATA = Path(__file__).parents[2] / "data"


class Bytes:
    def tokenize(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        return list(text.encode())


def test_windows_tile_the_positions_and_targets_follow_them() -> None:
    windows, targets = cut(range(100, 120), 11, 4)
    assert windows == ((100, 101, 102, 103), (104, 105, 106, 107), (108, 109, 110))
    assert targets == tuple(range(101, 112))


def test_the_text_of_the_package_is_the_one_in_the_tests() -> None:
    text = read_text(None)
    assert text == (DATA / "alice-chapter-1.txt").read_text("ascii")
    assert 6000 < len(text) < 8000


def test_material_has_everything_in_ids() -> None:
    material = english_material(Bytes(), None, 1000, 600)
    assert [len(window) for window in material.windows] == [600, 400]
    assert material.positions == 1000
    assert bytes(material.windows[0]).startswith(b"Alice was beginning")
    assert (len(material.prompts), len(material.questions)) == (10, 12)
    assert all(bytes(ids).decode() == case.prompt for case, ids in material.questions)


def test_faults_are_named(tmp_path: Path) -> None:
    short, latin = tmp_path / "short.txt", tmp_path / "latin.txt"
    short.write_text("abc")
    latin.write_bytes(b"na\xefve")
    with pytest.raises(ConfigError, match=r"short\.txt: the text has too few tokens \(expected 4, found 3\)"):
        english_material(Bytes(), short, 3, 10)
    with pytest.raises(ConfigError, match=r"latin\.txt: byte 2: is not UTF-8"):
        english_material(Bytes(), latin, 3, 10)
    with pytest.raises(MissingFileError, match=r"absent\.txt"):
        read_text(tmp_path / "absent.txt")
    with pytest.raises(ConfigError, match="at least 1, found 3 and 0"):
        english_material(Bytes(), short, 3, 0)


@pytest.mark.parametrize(
    ("vocab", "positions"), [(1000, 1024), (49152, 1024), (196608, 1024), (262144, 768), (1 << 40, 1)]
)
def test_fewer_positions_for_a_large_vocabulary(vocab: int, positions: int) -> None:
    assert default_positions(vocab) == positions


def test_targets_of_a_trimmed_head_are_its_columns() -> None:
    material = Material(windows=((1, 2, 3),), targets=(9, 4, 7), prompts=(), questions=())
    assert material.within((7, 5, 9)) == (2, -1, 0)
    assert material.within(()) == material.targets
