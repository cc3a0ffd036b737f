"""Sets the weights of one engine, all or nothing, and proves what changed.

The template is copied beside the output; every `set` writes there and reads back at once, by another way than it wrote;
`commit` compares the whole file with the template outside the planned spans, syncs and renames.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from layouts.atomic import Beside
from layouts.errors import LayoutError
from layouts.stored import EngineLayout, StoredTensor
from layouts.view import write_tensor
from pipeline.checkpoint.protocol import Float32
from pipeline.container.blob import Bytes, read_blob
from pipeline.errors import InternalError, MismatchError, NotFiniteError
from pipeline.refit.choose import ENGINE, Given, ScaleMode, bias_name, choose_rows, stored_digest
from pipeline.refit.outside import CHUNK, checked_blob, compare_outside
from pipeline.refit.readback import read_back
from pipeline.refit.report import EngineReport, TensorReport


@dataclass(frozen=True)
class Prototype:
    """What `set` takes for a weight, and where it goes.

    shape : of the matrix that is stored, rows first
    copies : names of the places
    bias : the bias that goes with it, "" for none
    """

    shape: tuple[int, int]
    codec: str
    copies: tuple[str, ...]
    bias: str = ""


@dataclass(frozen=True)
class _Open:
    """The copy beside the output: as a file, as what is written, and as what another reader of the file sees."""

    beside: Beside
    data: np.memmap[tuple[int, ...], np.dtype[np.uint8]]
    proof: Bytes


class EngineRefitter:
    """Use as a context manager; leaving it without `commit` removes everything that was written.

    Parameters
    ----------
    template : the engine (or embedding file) to start from; opened read-only
    layout : its confirmed layout
    output : the file that `commit` makes
    scales : how scales of integer weights are chosen; `engine` keeps the template's
    """

    def __init__(self, template: Path, layout: EngineLayout, output: Path, scales: ScaleMode = "refit") -> None:
        self.template, self.layout, self.output, self.scales = template, layout, output, scales
        self._blob = checked_blob(template, layout)
        self._engine = read_blob(template)
        self._covered = {tensor.name: np.zeros(tensor.shape[0], np.bool_) for tensor in layout.tensors}
        self._report = EngineReport()
        self._open: _Open | None = None

    def __enter__(self) -> EngineRefitter:
        beside = Beside(self.output)
        try:
            with self.template.open("rb") as source:
                shutil.copyfileobj(source, beside.file, CHUNK)
            beside.file.flush()
            where = (self._blob.offset, (self._blob.size,))
            data = np.memmap(beside.file, np.uint8, "r+", *where)
            self._open = _Open(beside, data, np.memmap(beside.path, np.uint8, "r", *where))
        except BaseException:
            beside.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        beside, self._open = self._opened().beside, None
        beside.discard()

    def _opened(self) -> _Open:
        if self._open is None:
            raise InternalError("the refitter is not open")
        return self._open

    def weights(self) -> list[str]:
        """Every weight that can be set."""
        return self.layout.names()

    def prototype(self, name: str) -> Prototype:
        """Raises MismatchError for an unknown weight."""
        stored = self._stored(name)
        return Prototype(stored.shape, stored.codec, tuple(copy.name for copy in stored.copies), bias_name(stored))

    def missing(self) -> list[str]:
        """Weights that have not been set, or not all of whose rows."""
        return [name for name, covered in self._covered.items() if not covered.all()]

    def unused(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that this engine has no place for."""
        return [name for name in names if name not in self._covered]

    def set(self, name: str, values: Float32, first_row: int = 0, bias: Float32 | None = None) -> None:
        """Write a weight, or its rows from `first_row` on, to every copy, and read it back.

        Parameters
        ----------
        values : float32 `[rows, cols]` of the stored matrix (`layouts.stored.to_matrix`); `[n]` for a vector
        bias : float32 `[rows]`, of a weight whose prototype names one, and of no other

        Raises
        ------
        MismatchError : an unknown weight, another shape or type
        NotFiniteError : a NaN or an infinity, names the element; a value or a scale that the codec cannot hold
        ToolchainError : scales of the template that cannot be kept
        VerifyError : the file does not hold what was written
        """
        stored = self._stored(name)
        rows = self._check(stored, values, first_row)
        self._check_bias(stored, bias, len(rows), first_row)
        given = Given(first_row, rows, bias)
        try:
            chosen = choose_rows(stored, given, self.scales, self._engine, self.template)
        except LayoutError as error:
            raise NotFiniteError(error.reason, file=self.template, where=name, found=error.found) from error
        opened = self._opened()
        write_tensor(opened.data, stored, chosen.encoded, first_row)
        read_back(opened.proof, stored, chosen.encoded, first_row, self.output)
        self._covered[name][first_row : first_row + len(rows)] = True
        self._report_of(stored).add(stored, given, chosen)

    def commit(self) -> EngineReport:
        """Prove that nothing outside the planned spans moved, and publish the file.

        Raises
        ------
        MismatchError : weights that are missing
        VerifyError : a byte outside the spans that differs from the template; nothing is published
        """
        missing = self.missing()
        if missing:
            raise MismatchError(f"not all weights are set: {', '.join(missing)}", file=self.output)
        opened = self._opened()
        opened.data.flush()
        for stored in self.layout.tensors:
            if self.scales == ENGINE and stored.scales is not None:
                self._report_of(stored).stored_sha256 = stored_digest(opened.proof, stored)
        spans = compare_outside(self.template, opened.beside.file.fileno(), self.output, self.layout)
        self._report.planned_bytes, self._report.changed_bytes = spans.planned, spans.changed
        opened.beside.publish()
        return self._report

    def _stored(self, name: str) -> StoredTensor:
        if name not in self._covered:
            known = ", ".join(self._covered)
            raise MismatchError("the engine has no such weight", file=self.template, where=name, expected=known)
        return self.layout[name]

    def _report_of(self, stored: StoredTensor) -> TensorReport:
        scales = "" if stored.scales is None else self.scales
        fresh = TensorReport(stored.codec, self.prototype(stored.name).copies, scales=scales)
        return self._report.tensors.setdefault(stored.name, fresh)

    def _check(self, stored: StoredTensor, values: Float32, first_row: int) -> Float32:
        rows = values[None] if values.ndim == 1 and stored.shape[0] == 1 else values
        fits = rows.ndim == 2 and rows.shape[1] == stored.shape[1] and 0 <= first_row <= stored.shape[0] - len(rows)
        if rows.dtype != np.float32 or not fits:
            raise MismatchError(
                "wrong shape or type",
                file=self.template,
                where=stored.name,
                expected=f"float32 {list(stored.shape)}",
                found=f"{values.dtype} {list(values.shape)} from row {first_row}",
            )
        self._check_finite(rows, f"{stored.name}[{{}}, {{}}]", first_row)
        return rows

    def _check_bias(self, stored: StoredTensor, bias: Float32 | None, rows: int, first_row: int) -> None:
        wanted = bias_name(stored)
        unfit = bias is not None and (bias.dtype != np.float32 or bias.shape != (rows,))
        if unfit or (bias is None) != (wanted == ""):
            expected = f"float32 [{rows}] of {wanted}" if wanted else "none"
            found = "none" if bias is None else f"{bias.dtype} {list(bias.shape)}"
            raise MismatchError("wrong bias", file=self.template, where=stored.name, expected=expected, found=found)
        if bias is not None:
            self._check_finite(bias, f"{wanted}[{{}}]", first_row)

    def _check_finite(self, values: Float32, where: str, first_row: int) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row, *others = (int(i) for i in np.unravel_index(int(np.argmin(finite)), finite.shape))
            at, found = where.format(first_row + row, *others), float(values[row, *others])
            raise NotFiniteError("not a finite number", file=self.template, where=at, found=found)
