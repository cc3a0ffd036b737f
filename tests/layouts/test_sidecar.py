"""The TOML sidecar: exact, deterministic, atomic, and strict about every field."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layouts.algebra import Digit, Layout, Piece
from layouts.errors import SidecarError
from layouts.sidecar import MAX_BYTES, dump_layout, load_layout, read_layout, write_layout
from layouts.stored import Copy, EngineLayout, Plane, StoredTensor
from tests.helpers.integers import integer_engines, published
from tests.helpers.layouts import engines

WHOLE = Layout((6, 5), 8, (Digit(4, 16), Digit(2, 384)), (Digit(5, 64),), 16)
SECOND = Layout((2, 5), 1600, (Digit(2, 16),), (Digit(5, 64),), 16)
COPIES = (Copy("decode", (Plane((Piece(0, 0, WHOLE),)),)), Copy("prefill", (Plane((Piece(4, 0, SECOND),)),)))
SMALL = EngineLayout(
    "layer", "npu_params", 400, (StoredTensor("self_attn.q_proj.weight", (6, 5), "bf16", COPIES),), 1570
)
TEXT = """\
format = 3
kind = "layer"
blob = "npu_params"
blob_bytes = 400
blob_offset = 1570

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


INTEGER = EngineLayout("layer", "w", 1300, (published("up", (32, 36)),))
INTEGER_TEXT = """\
codec = "s8"

[tensor.scales]
entry = "reciprocal"
group = 256
divisor = 127.0
shared = true

[[tensor.copy]]
name = "decode"
entries = [
    "at 0,0  [32,1]  rows 32:32  cols 1:0  width 32  base 9216",
]

[[tensor.copy.plane]]
low_bit = 0
bits = 4
bias = 0
pieces = [
    "at 0,0  [32,36]  rows (16,2):(576,288)  cols 36:4  width 4  base 0",
]

[[tensor.copy.plane]]
low_bit = 4
bits = 4
bias = 8
pieces = [
    "at 0,0  [32,36]  rows (16,2):(576,288)  cols 36:4  width 4  base 144",
]
"""


def test_golden_text_of_integers() -> None:
    text = dump_layout(INTEGER)
    assert text.endswith(INTEGER_TEXT)
    assert load_layout(text) == INTEGER
    folded = text.replace('codec = "s8"', 'codec = "s8"\nfolded = "input_layernorm.weight"')
    assert load_layout(folded).tensors[0].folded == "input_layernorm.weight"
    assert dump_layout(load_layout(folded)) == folded


@given(st.one_of(engines(), integer_engines()))
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
        ("format = 3", "format = 2", "format", "unknown version"),
        ("format = 3", "format = true", "format", "wrong type"),
        ("format = 3\n", "", "format", "missing key"),
        ("format = 3", "format = 3\nextra = 3", "extra", "unknown key"),
        ("format = 3", "format = = 2", None, "not TOML"),
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


@pytest.mark.parametrize(
    ("old", "new", "where", "reason"),
    [
        ("group = 256", "group = 0", r"tensor\[0\].scales", "out of range"),
        ("group = 256\n", "", r"tensor\[0\].scales.group", "missing key"),
        ("group = 256", "group = 256.0", r"tensor\[0\].scales.group", "wrong type"),
        ("group = 256", "group = 35", r"tensor\[0\]: up: decode", "another shape"),
        ("divisor = 127.0", "divisor = 127", r"tensor\[0\].scales.divisor", "wrong type"),
        ("divisor = 127.0", "divisor = nan", r"tensor\[0\].scales", "out of range"),
        ("shared = true", "shared = 1", r"tensor\[0\].scales.shared", "wrong type"),
        ("shared = true", "shared = true\nmore = 1", r"tensor\[0\].scales.more", "unknown key"),
        ('"reciprocal"', '"fp64"', r"tensor\[0\].scales", "unknown scale entry"),
        ('"reciprocal"', '"bf16"', r"tensor\[0\]: up: decode", "another shape"),
        ('codec = "s8"', 'codec = "bf16"', r"tensor\[0\]: up", "integer codecs have scales"),
        ('codec = "s8"', 'codec = "s8"\nfolded = ""', r"tensor\[0\].folded", "not a name"),
        ('codec = "s8"', 'codec = "s8"\nfolded = "a b"', r"tensor\[0\]", "not a name"),
        ("entries = [", "other = [", r"tensor\[0\].copy\[0\].other", "unknown key"),
        ("cols 1:0  width 32", "cols 1:0  width 33", r"tensor\[0\].copy\[0\].entries\[0\]", "overlap"),
        ("base 9216", "base 9184", "layout: up", "two elements in one place"),
        ("base 9216", "base 9400", "layout: up", "piece outside the blob"),
        ("low_bit = 4", "low_bit = 3", r"tensor\[0\]: up: decode", "do not follow"),
    ],
)
def test_refusals_of_integers(old: str, new: str, where: str, reason: str) -> None:
    text = dump_layout(INTEGER)
    assert old in text
    with pytest.raises(SidecarError, match=rf"^x\.toml: {where}.*{reason}"):
        load_layout(text.replace(old, new, 1), "x.toml")


def test_integers_without_entries_are_refused() -> None:
    text = dump_layout(INTEGER)
    start, stop = text.index("entries = ["), text.index("]\n", text.index("entries = [")) + 2
    with pytest.raises(SidecarError, match="scale entries without scales, or scales without entries"):
        load_layout(text[:start] + text[stop:])


@pytest.mark.parametrize("text", ['pieces = ["at 0,0  [1,', "pieces = [3]", "pieces = 3", 'copy = "x"', "plane = [7]"])
def test_other_types_are_refused(text: str) -> None:
    with pytest.raises(SidecarError):
        load_layout('format=3\nkind="layer"\nblob="b"\nblob_bytes=9\nblob_offset=0\n[[tensor]]\n' + text)


def test_nested_tables_must_be_tables() -> None:
    with pytest.raises(SidecarError, match=r"tensor\[0\]: wrong type"):
        load_layout('format=3\nkind="layer"\nblob="b"\nblob_bytes=9\nblob_offset=0\ntensor=[3]')
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
