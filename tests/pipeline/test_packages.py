"""Files in pieces, spread over the packages that one package requires: joined once, and everything that can be wrong."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import MissingFileError
from pipeline.packages import packaged_file

PIECES = [bytes([number]) * (1000 + number) for number in range(3)]


def install(site: Path, package: str, version: str, files: dict[str, bytes], requires: list[str] = []) -> None:  # noqa: B006
    """A distribution as pip leaves it: metadata, record with sizes and hashes, files."""
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {line}\n" for line in requires]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{''.join(lines)}")
    record = []
    for name, data in files.items():
        (site / package).mkdir(exist_ok=True)
        (site / package / name).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record.append(f"{package}/{name},sha256={digest},{len(data)}\n")
    (info / "RECORD").write_text("".join(record))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    requires = [f"zoo-part{number}==2.0" for number in range(3)]
    install(folder, "zoo", "2.0", {"README": b"x"}, [*requires, "numpy>=1", 'absent==1 ; extra == "dev"'])
    for number, piece in enumerate(PIECES):
        install(folder, f"zoo-part{number}", "2.0", {f"m.gguf.part{number:02}": piece})
    return folder


def test_pieces_are_joined_once(site: Path, tmp_path: Path) -> None:
    joined = packaged_file("zoo==2.0", "m.gguf", tmp_path / "cache")
    assert joined.is_absolute() and joined.name == "m.gguf" and joined.read_bytes() == b"".join(PIECES)
    assert joined.is_relative_to(tmp_path / "cache")
    assert sorted(path.name for path in joined.parent.iterdir()) == ["m.gguf", "m.gguf.seal.json"]
    before = joined.stat()
    assert packaged_file("zoo", "m.gguf", tmp_path / "cache") == joined
    assert joined.stat().st_mtime_ns == before.st_mtime_ns and joined.stat().st_ino == before.st_ino


@pytest.mark.parametrize("content", [b"half", b"x" * sum(map(len, PIECES)), None])
def test_joined_file_that_has_changed_is_joined_again(site: Path, tmp_path: Path, content: bytes | None) -> None:
    joined = packaged_file("zoo", "m.gguf", tmp_path)
    joined.unlink()
    if content is not None:
        joined.write_bytes(content)
    with pytest.warns(UserWarning, match=r"m\.gguf: .*, joined again"):
        assert packaged_file("zoo", "m.gguf", tmp_path).read_bytes() == b"".join(PIECES)


def test_pieces_of_the_package_itself_join_too(site: Path, tmp_path: Path) -> None:
    install(site, "one", "1.0", {"w.bin.part00": b"ab", "w.bin.part01": b"c"})
    assert packaged_file("one==1.0", "w.bin", tmp_path).read_bytes() == b"abc"


def piece(site: Path, number: int) -> Path:
    return site / f"zoo-part{number}/m.gguf.part{number:02}"


def delete(site: Path) -> None:
    piece(site, 2).unlink()


def shorten(site: Path) -> None:
    piece(site, 1).write_bytes(PIECES[1][:-1])


def change(site: Path) -> None:
    piece(site, 1).write_bytes(PIECES[1][:-1] + b"?")


def forget(site: Path) -> None:
    (site / "zoo_part1-2.0.dist-info/RECORD").write_text("")


def uninstall(site: Path) -> None:
    (site / "zoo_part1-2.0.dist-info/METADATA").unlink()
    (site / "zoo_part1-2.0.dist-info/RECORD").unlink()
    (site / "zoo_part1-2.0.dist-info").rmdir()


def upgrade(site: Path) -> None:
    metadata = site / "zoo_part1-2.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 2.0", "Version: 3.0"))


def double(site: Path) -> None:
    install(site, "zoo-more", "2.0", {"m.gguf.part01": PIECES[1]})
    metadata = site / "zoo-2.0.dist-info/METADATA"
    metadata.write_text(metadata.read_text() + "Requires-Dist: zoo-more==2.0\n")


FAULTS: list[tuple[Callable[[Path], None], str]] = [
    (delete, r"m\.gguf\.part02: piece is missing, install its package again"),
    (shorten, r"part01: piece is not as it was installed, .* \(expected 1001 bytes, found 1000\)"),
    (change, r"part01: piece is not as it was installed"),
    (forget, r"m\.gguf: pieces are not one after the other \(expected m\.gguf\.part01, found m\.gguf\.part02\)"),
    (uninstall, r"zoo-part1: the package is not installed: pip install zoo-part1==2\.0"),
    (upgrade, r"zoo-part1: wrong version \(expected 2\.0, found 3\.0\)"),
    (double, r"pieces are not one after the other \(expected m\.gguf\.part02, found m\.gguf\.part01\)"),
]


@pytest.mark.parametrize(("spoil", "message"), FAULTS)
def test_fault_is_one_line_and_leaves_nothing(site: Path, tmp_path: Path, spoil, message: str) -> None:
    spoil(site)
    with pytest.raises(MissingFileError, match=message) as caught:
        packaged_file("zoo", "m.gguf", tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("cache/**/*") if path.is_file()]


def test_file_that_no_package_carries(site: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"n\.gguf: the package zoo==2\.0 does not carry the file"):
        packaged_file("zoo==2.0", "n.gguf", tmp_path)
