"""One class per cause. All but `InternalError` are the user's to mend and print as one line."""

from __future__ import annotations

from layouts.errors import DecodeRefused, EngineSetError, FitRefused, LayoutError, SidecarError

__all__ = [
    "AxmodelError",
    "CheckpointError",
    "ConfigError",
    "ContainerError",
    "DecodeRefused",
    "EngineSetError",
    "FitRefused",
    "InternalError",
    "LayoutError",
    "MismatchError",
    "MissingFileError",
    "NotFiniteError",
    "RknnError",
    "RunnerError",
    "SidecarError",
    "ToolchainError",
    "VerifyError",
    "fault_lines",
]


class MissingFileError(EngineSetError):
    """A file or directory that was named and is not there."""


class CheckpointError(EngineSetError):
    """A source of weights that is malformed, truncated or of an unknown kind."""


class ContainerError(EngineSetError):
    """An engine file that is malformed or lacks what an engine has."""


class AxmodelError(ContainerError):
    """An `.axmodel` that is malformed or lacks what an engine has."""


class RknnError(ContainerError):
    """An `.rknn` that is malformed or lacks what an engine has."""


class ConfigError(EngineSetError):
    """A configuration file with an unknown key, a wrong type or a contradiction."""


class MismatchError(EngineSetError):
    """Source and template disagree: architecture, dimensions, tensors."""


class NotFiniteError(EngineSetError):
    """A NaN or an infinity in a weight or in a block scale."""


class ToolchainError(EngineSetError):
    """A compiler that cannot do what it was asked, or failed."""


class VerifyError(EngineSetError):
    """An engine set whose bytes are not what its manifest or its source says."""


class RunnerError(EngineSetError):
    """The runner or the runtime library failed or is not there."""


class InternalError(Exception):
    """A fault of ours: never the user's, printed with a traceback."""


def fault_lines(error: BaseException) -> list[str] | None:
    """What a user is to read: a line for each fault, or None for what is a bug of ours.

    The operating system's refusals (permission, full disk, a file in the way) are the user's to mend.
    """
    if isinstance(error, EngineSetError):
        return str(error).splitlines()
    if isinstance(error, OSError) and error.strerror is not None:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return [": ".join([*names, error.strerror])]
    return None
