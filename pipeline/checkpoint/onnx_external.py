"""Data of an ONNX tensor outside the model file: only of a plain file beside it, however its name is written."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

from pipeline.axmodel.wire import LENGTH, fields, text
from pipeline.checkpoint.source_file import SourceFile
from pipeline.container.mapped import Buffer
from pipeline.errors import CheckpointError

_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2


class ExternalFiles:
    """The files that a model's tensors name, each opened once."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.opened: dict[str, SourceFile] = {}

    def place(self, entries: dict[str, str], size: int, where: str) -> tuple[SourceFile, int]:
        """File and offset of `size` bytes of data, from a tensor's `external_data`.

        Raises
        ------
        MissingFileError : there is no such file
        CheckpointError : a place outside the model's directory, a number that is none, another length, a file too short
        """
        location = entries.get("location", "")
        if location not in self.opened:
            self.opened[location] = SourceFile(self._path(location, where))
        source = self.opened[location]
        offset = self._number(entries, "offset", 0, where)
        length = self._number(entries, "length", size, where)
        if length != size:
            raise self._bad("external length does not follow from shape and type", where, size, length)
        if offset > source.size or size > source.size - offset:
            reason = "external data end past the end of the file"
            raise CheckpointError(
                reason, file=source.path, where=where, offset=offset, expected=offset + size, found=source.size
            )
        return source, offset

    def _path(self, location: str, where: str) -> Path:
        """Links are followed, as a model cache has them, to where the model itself lies and nowhere else."""
        name = PurePosixPath(location)
        if not name.parts or name.is_absolute() or ".." in name.parts or "\0" in location:
            raise self._bad("external data outside the model's directory", where, "a file beside the model", location)
        if PureWindowsPath(location).drive or ".." in PureWindowsPath(location).parts:
            raise self._bad("external data outside the model's directory", where, "a file beside the model", location)
        path = self.model.parent / name
        allowed = (self.model.parent.resolve(), self.model.resolve().parent)
        try:
            real = path.resolve()
        except (OSError, RuntimeError):  # the name is too long, links lead in a circle
            raise self._bad("a path that cannot be followed", where, None, location[:80]) from None
        if not any(real.is_relative_to(folder) for folder in allowed):
            raise self._bad("a link leads outside the model's directory", where, "a file beside the model", location)
        return path

    def _number(self, entries: dict[str, str], key: str, default: int, where: str) -> int:
        value = entries.get(key, str(default))
        if not (value.isascii() and value.isdigit() and len(value) < 20):
            raise self._bad(f"external {key} is no number of bytes", where, None, value)
        return int(value)

    def _bad(self, reason: str, where: str, expected: object, found: object) -> CheckpointError:
        return CheckpointError(reason, file=self.model, where=where, expected=expected, found=found)


def external_entries(data: Buffer, start: int, stop: int, where: str) -> dict[str, str]:
    """`external_data` of the TensorProto at start:stop: location, offset, length and what else it says, as text."""
    entries: dict[str, str] = {}
    for field in fields(data, start, stop, where):
        if field.number == _EXTERNAL_DATA and field.kind == LENGTH:
            pair = {part.number: text(data, part, where) for part in fields(data, field.start, field.stop, where)}
            entries[pair.get(_KEY, "")] = pair.get(_VALUE, "")
    return entries
