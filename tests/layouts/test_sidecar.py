"""The TOML sidecar: exact, deterministic, atomic, and strict about every field."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from layouts.algebra import Digit, Layout, Piece
from layouts.errors import SidecarError
from layouts.sidecar import MAX_BYTES, dump_layout, load_layout, read_layout, write_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.layouts import engines

WHOLE = Layout((6, 5), 8, (Digit(4, 16), Digit(2, 384)), (Digit(5, 64),), 16)
SECOND = Layout((2, 5), 1600, (Digit(2, 16),), (Digit(5, 64),), 16)
COPIES = (Copy("decode", (Plane((Piece(0, 0, WHOLE),)),)), Copy("prefill", (Plane((Piece(4, 0, SECOND),)),)))
SMALL = EngineLayout("layer", "npu_params", 400, (StoredTensor("self_attn.q_proj.weight", (6, 5), "bf16", COPIES),))
TEXT = """\
format = 1
kind = "layer"
blob = "npu_params"
blob_bytes = 400

[[tensor]]
name = "self_attn.q_proj.weight"
shape = [
    6,
    5,
]
codec = "bf16"

[[tensor.copy]]
name = "decode"

[[tensor.copy.plane]]
low_bit = 0
bits = 16
bias = 0
pieces = [
    "at 0,0  [6,5]  rows (4,2):(16,384)  cols 5:64  width 16  base 8",
]

[[tensor.copy]]
name = "prefill"

[[tensor.copy.plane]]
low_bit = 0
bits = 16
bias = 0
pieces = [
    "at 4,0  [2,5]  rows 2:16  cols 5:64  width 16  base 1600",
]
"""


def test_golden_text() -> None:
    assert dump_layout(SMALL) == TEXT
    assert load_layout(TEXT) == SMALL


@given(engines())
def test_round_trip(engine: EngineLayout) -> None:
    text = dump_layout(engine)
    assert load_layout(text) == engine
    assert dump_layout(load_layout(text)) == text


def test_file_round_trip_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "layer.layout.toml"
    path.write_text("old")
    write_layout(path, SMALL)
    assert read_layout(path) == SMALL
    assert [p.name for p in tmp_path.iterdir()] == ["layer.layout.toml"]


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "layer.layout.toml"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_layout(path, SMALL)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["layer.layout.toml"]


@pytest.mark.parametrize(
    ("old", "new", "where", "reason"),
    [
        ("format = 1", "format = 2", "format", "unknown version"),
        ("format = 1", "format = true", "format", "wrong type"),
        ("format = 1\n", "", "format", "missing key"),
        ("format = 1", "format = 1\nextra = 3", "extra", "unknown key"),
        ("format = 1", "format = = 1", None, "not TOML"),
        ('kind = "layer"', 'kind = "tail"', "layout", "unknown kind"),
        ("blob_bytes = 400", "blob_bytes = 4e2", "blob_bytes", "wrong type"),
        ("blob_bytes = 400", "blob_bytes = 200", "layout: self_attn.q_proj.weight", "piece outside the blob"),
        ("    5,\n]", "    5,\n    1,\n]", r"tensor\[0\].shape", "not a shape"),
        ("    5,\n]", "    true,\n]", r"tensor\[0\].shape", "not a shape"),
        ("    6,", "    7,", r"tensor\[0\]: self_attn.q_proj.weight", "first copy lacks rows"),
        ("    6,", "    -6,", r"tensor\[0\]: self_attn.q_proj.weight: decode", "differ in shape"),
        ('codec = "bf16"', 'codec = "bf17"', r"tensor\[0\]", "unknown codec"),
        ('codec = "bf16"', 'codec = "bf16"\nscale = 1', r"tensor\[0\].scale", "unknown key"),
        ('"prefill"', '"decode"', r"tensor\[0\]: self_attn.q_proj.weight", "two copies"),
        ('"prefill"', "3", r"tensor\[0\].copy\[1\].name", "wrong type"),
        ('"prefill"', '"pre fill"', r"tensor\[0\].copy\[1\]", "not a name"),
        ("bits = 16", "bits = 17", r"tensor\[0\].copy\[0\].plane\[0\]", "bits of the plane"),
        ("low_bit = 0", "low_bit = 1", r"tensor\[0\]: self_attn.q_proj.weight: decode", "do not follow"),
        ("bias = 0", "bias = -1", r"tensor\[0\].copy\[0\].plane\[0\]", "bias of the plane"),
        ("width 16  base 8", "width 16", r"tensor\[0\].copy\[0\].plane\[0\].pieces\[0\]", "not a layout"),
        ("cols 5:64", "cols 5:8", r"tensor\[0\].copy\[0\].plane\[0\].pieces\[0\]", "overlap"),
        ("base 1600", "base 8", "layout: self_attn.q_proj.weight", "two elements in one place"),
    ],
)
def test_refusals_name_the_field(old: str, new: str, where: str | None, reason: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    with pytest.raises(SidecarError, match=rf"^x\.toml: {where + ': ' if where else ''}.*{reason}"):
        load_layout(text, "x.toml")


@pytest.mark.parametrize("text", ['pieces = ["at 0,0  [1,', "pieces = [3]", "pieces = 3", 'copy = "x"', "plane = [7]"])
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(SidecarError):
        load_layout('format=1\nkind="layer"\nblob="b"\nblob_bytes=9\n[[tensor]]\n' + text)


def test_nested_tables_must_be_tables() -> None:
    with pytest.raises(SidecarError, match=r"tensor\[0\]: wrong type"):
        load_layout('format=1\nkind="layer"\nblob="b"\nblob_bytes=9\ntensor=[3]')
    text = TEXT.replace('    "at 4,0  [2,5]  rows 2:16  cols 5:64  width 16  base 1600",', "    3,")
    with pytest.raises(SidecarError, match=r"plane\[0\].pieces\[0\]: wrong type"):
        load_layout(text)


@pytest.mark.parametrize(
    "piece",
    [
        "at 0,0  [2147483648,2147483648]  rows 2147483648:16  cols 2147483648:34359738368  width 16  base 0",
        "at 0,0  [2000000000,1]  rows 2000000000:16  cols 1:0  width 16  base 0",
        "at 0,2000000000  [6,5]  rows 6:16  cols 5:96  width 16  base 8",
        "at 99999999999,0  [6,5]  rows 6:16  cols 5:96  width 16  base 8",
    ],
)
def test_hostile_sizes_are_refused_before_memory_is_taken(piece: str) -> None:
    text = TEXT.replace("at 0,0  [6,5]  rows (4,2):(16,384)  cols 5:64  width 16  base 8", piece)
    with pytest.raises(SidecarError):
        load_layout(text)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(SidecarError, match="not TOML"):
        load_layout("format = " + "[" * 50_000)


def test_file_refusals(tmp_path: Path) -> None:
    with pytest.raises(SidecarError, match="cannot be read"):
        read_layout(tmp_path / "absent")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(SidecarError, match="cannot be read"):
        read_layout(tmp_path / "latin")
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 9))
    with pytest.raises(SidecarError, match="sidecar too large"):
        read_layout(tmp_path / "large")
