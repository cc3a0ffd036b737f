"""Files that are whole or not there, and hashes that trust an equal stat and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline import hashes as hashes_module
from pipeline.files import file_sha256, point_link, publish_directory, write_bytes, write_json
from pipeline.hashes import HashCache, canonical_json, digest


def test_write_replaces_a_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_bytes(path, b"first")
    handle = path.open("rb")
    write_bytes(path, b"second")
    assert (handle.read(), path.read_bytes()) == (b"first", b"second")
    handle.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"old"}


def test_json_is_readable_text(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ä": [1, None]})
    assert (tmp_path / "a.json").read_text("utf-8").endswith("\n")
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"ä": [1, None]}
    assert "ä" in (tmp_path / "a.json").read_text("utf-8")


def filled(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "file").write_text(text)
    return path


def test_published_directory_takes_its_name(tmp_path: Path) -> None:
    publish_directory(filled(tmp_path / "partial", "a"), tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "a"
    assert not (tmp_path / "partial").exists()


def test_publishing_replaces_what_stood_there(tmp_path: Path) -> None:
    filled(tmp_path / "final", "first")
    publish_directory(filled(tmp_path / "partial", "second"), tmp_path / "final")
    assert (tmp_path / "final" / "file").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_publishing_onto_a_file_fails_and_keeps_both(tmp_path: Path) -> None:
    (tmp_path / "final").write_text("in the way")
    with pytest.raises(OSError, match="final"):
        publish_directory(filled(tmp_path / "partial", "a"), tmp_path / "final")
    assert (tmp_path / "final").read_text() == "in the way"
    assert (tmp_path / "partial" / "file").exists()


def test_link_moves_and_is_relative(tmp_path: Path) -> None:
    for name in ("one", "two"):
        filled(tmp_path / name, name)
        point_link(tmp_path / "link", tmp_path / name)
        assert (tmp_path / "link").readlink() == Path(name)
        assert (tmp_path / "link" / "file").read_text() == name
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "one", "two"]


def test_hash_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 999)
    assert file_sha256(tmp_path / "file") == hashlib.sha256(bytes(range(256)) * 999).hexdigest()


def test_digest_depends_on_values_and_not_on_order() -> None:
    assert digest({"a": 1, "b": [2, "ä"]}) == digest({"b": [2, "ä"], "a": 1})
    assert len({digest(v) for v in (None, 0, 1, "1", [1], {"a": 1}, {"a": 2}, {"b": 1})}) == 8
    assert canonical_json({"b": 1, "a": "ä"}) == '{"a":"ä","b":1}'.encode()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were really read."""
    read: list[Path] = []

    def spy(path: Path) -> str:
        read.append(path)
        return file_sha256(path)

    monkeypatch.setattr(hashes_module, "file_sha256", spy)
    return read


def test_equal_stat_is_trusted(tmp_path: Path, counted: list[Path]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    for _ in range(3):
        assert HashCache(tmp_path / "db" / "hashes.sqlite").sha256(path) == hashlib.sha256(b"data").hexdigest()
    assert len(counted) == 1


def touched(path: Path) -> None:
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


def rewritten_under_the_old_time(path: Path) -> None:
    stat = path.stat()
    path.write_bytes(b"DATA")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replaced_under_the_old_time(path: Path) -> None:
    stat = path.stat()
    other = path.with_name("other")
    other.write_bytes(b"DATA")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)


def grown(path: Path) -> None:
    path.write_bytes(b"data!")


@pytest.mark.parametrize(
    "change", [touched, rewritten_under_the_old_time, replaced_under_the_old_time, grown], ids=lambda f: f.__name__
)
def test_anything_else_is_hashed_again(tmp_path: Path, counted: list[Path], change) -> None:
    cache, path = HashCache(tmp_path / "hashes.sqlite"), tmp_path / "file"
    path.write_bytes(b"data")
    cache.sha256(path)
    change(path)
    assert cache.sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert len(counted) == 2


def test_many_at_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}" for i in range(20)]
    for path in paths:
        path.write_bytes(path.name.encode())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(HashCache(tmp_path / "hashes.sqlite").sha256, paths * 3))
    assert found == [hashlib.sha256(path.name.encode()).hexdigest() for path in paths * 3]
