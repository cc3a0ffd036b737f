"""Files inside installed packages; a large one may be in pieces, spread over packages that the named one requires."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import shutil
import warnings
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath
from pathlib import Path

from layouts.atomic import write_beside
from pipeline.errors import MissingFileError
from pipeline.files import make_way
from pipeline.hashes import HashCache
from pipeline.seal import seal_damage, write_seal

_BLOCK = 1 << 20
_EXACT = re.compile(r"(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)\s*\(?==\s*(?P<version>[^\s;)]+)\)?\s*")


def packaged_file(requirement: str, name: str, cache: Path) -> Path:
    """The file `name` of an installed package, joined in `cache` when the packages carry `name.part00`, `.part01` ….

    Parameters
    ----------
    requirement : `package` or `package==version`
    cache : the joined file is written here once, under a name that follows from the hashes of its pieces, and its own hash
        beside it; one that has changed since is joined again, with a warning

    Raises
    ------
    MissingFileError : package or piece is not there, of another version, or not as it was installed
    """
    distribution = _installed(requirement)
    entries = distribution.files or []
    for entry in entries:
        if entry.name == name:
            return Path(str(entry.locate())).resolve()
    required = [_installed(pinned) for pinned in _pinned(distribution)]
    pieces = [entry for package in [distribution, *required] for entry in package.files or []]
    pieces = _in_order([entry for entry in pieces if re.fullmatch(re.escape(name) + r"\.part\d{2,}", entry.name)], name)
    if not pieces:
        raise MissingFileError(f"the package {requirement} does not carry the file", file=name)
    folder = cache / f"{distribution.name}-{distribution.version}"
    return _joined(pieces, name, folder, HashCache(cache / "hashes.sqlite"))


def _installed(requirement: str) -> Distribution:
    package, _, version = requirement.partition("==")
    try:
        distribution = importlib.metadata.distribution(package)
    except (PackageNotFoundError, ValueError):
        raise MissingFileError(f"the package is not installed: pip install {requirement}", file=package) from None
    if version and distribution.version != version:
        raise MissingFileError("wrong version", file=package, expected=version, found=distribution.version)
    return distribution


def _pinned(distribution: Distribution) -> list[str]:
    """What the package requires in one exact version, as the package of a piece is; others carry none."""
    matches = [_EXACT.fullmatch(line) for line in distribution.requires or []]
    return [f"{match['package']}=={match['version']}" for match in matches if match]


def _in_order(pieces: list[PackagePath], name: str) -> list[PackagePath]:
    ordered = sorted(pieces, key=lambda entry: int(entry.suffix.removeprefix(".part")))
    for number, entry in enumerate(ordered):
        if entry.name != f"{name}.part{number:02}":
            expected = f"{name}.part{number:02}"
            raise MissingFileError("pieces are not one after the other", file=name, expected=expected, found=entry.name)
    return ordered


def _joined(pieces: list[PackagePath], name: str, folder: Path, hashes: HashCache) -> Path:
    names = "".join(f"{entry.hash.value if entry.hash else entry.name} {entry.size}\n" for entry in pieces)
    joined = folder / hashlib.sha256(names.encode()).hexdigest()[:16] / name
    for entry in pieces:
        _check_size(entry)
    seal = joined.with_name(f"{name}.seal.json")
    damage = seal_damage(seal, hashes, [joined]) if seal.is_file() else ""
    if damage:
        warnings.warn(f"{damage}, joined again", stacklevel=2)
    if damage is not None:
        with write_beside(make_way(joined)) as file:
            for entry in pieces:
                with Path(str(entry.locate())).open("rb") as piece:
                    shutil.copyfileobj(piece, file, _BLOCK)
                _check_hash(entry)
        write_seal(seal, [joined], hashes)
    return joined.absolute()


def _check_size(entry: PackagePath) -> None:
    path = Path(str(entry.locate()))
    if not path.is_file():
        raise MissingFileError("piece is missing, install its package again", file=path)
    size = path.stat().st_size
    if entry.size is not None and size != entry.size:
        reason = "piece is not as it was installed, install its package again"
        raise MissingFileError(reason, file=path, expected=f"{entry.size} bytes", found=size)


def _check_hash(entry: PackagePath) -> None:
    """Against the record of the installation, which has the URL-safe base64 of a hash without its padding."""
    if entry.hash is None or entry.hash.mode not in hashlib.algorithms_guaranteed:
        return
    path = Path(str(entry.locate()))
    with path.open("rb") as piece:
        digest = hashlib.file_digest(piece, entry.hash.mode).digest()
    found = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    if found != entry.hash.value:
        reason = "piece is not as it was installed, install its package again"
        raise MissingFileError(reason, file=path, expected=entry.hash.value, found=found)
