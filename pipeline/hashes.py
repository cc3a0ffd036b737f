"""Content hashes. An equal stat (size, mtime_ns, ctime_ns, inode) of a hashed file is trusted, anything else hashed again."""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline.files import file_sha256


def canonical_json(value: object) -> bytes:
    """One text for equal values: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value: Any) -> str:
    """Hex SHA-256 of a JSON value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class HashCache:
    """SHA-256 of files, kept in a small database; safe to use from several processes."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._known: dict[tuple[object, ...], str] = {}

    def sha256(self, path: Path) -> str:
        """Hex SHA-256 of the file, from the cache where its stat has not changed."""
        stat = path.stat()
        key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        if key not in self._known:
            self._known[key] = self._stored(path, key)
        return self._known[key]

    def damage(self, directory: Path, files: Mapping[str, str]) -> str | None:
        """The first of `files` (name -> SHA-256) that is not in `directory` as listed, in one line; None for none."""
        for name, expected in files.items():
            path = directory / name
            if not path.is_file():
                return f"{path}: missing"
            if (found := self.sha256(path)) != expected:
                return f"{path}: sha256 (expected {expected}, found {found})"
        return None

    def _stored(self, path: Path, key: tuple[object, ...]) -> str:
        try:
            return self._looked_up(path, key)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(errno.EIO, str(error), str(self._database)) from None
            warnings.warn(f"{self._database}: {error}, started anew", stacklevel=2)
            self._database.unlink()
            return self._looked_up(path, key)

    def _looked_up(self, path: Path, key: tuple[object, ...]) -> str:
        self._database.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._database, timeout=60)) as connection, connection:
            connection.execute(
                "create table if not exists hashes (path text primary key, size, mtime, ctime, inode, sha256)"
            )
            query = "select sha256 from hashes where path=? and size=? and mtime=? and ctime=? and inode=?"
            row = connection.execute(query, key).fetchone()
            if row is not None:
                return str(row[0])
            found = file_sha256(path)
            connection.execute("insert or replace into hashes values (?, ?, ?, ?, ?, ?)", (*key, found))
        return found
