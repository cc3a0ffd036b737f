"""The error for weights that an engine cannot hold, in the words of their source."""

from __future__ import annotations

from layouts.codecs import Float32
from layouts.encoding import encode_rows
from layouts.errors import LayoutError
from layouts.stored import StoredTensor
from pipeline.checkpoint.protocol import Checkpoint, locate
from pipeline.errors import NotFiniteError
from pipeline.refit.plan import Assignment
from pipeline.refit.refit import does_not_fit


def not_storable(
    checkpoint: Checkpoint, assignment: Assignment, stored: StoredTensor, first_row: int, values: Float32
) -> NotFiniteError:
    """Names the element that a float codec refuses, or the row and group whose scale entry would be 0 or infinite.

    Parameters
    ----------
    values : the refused rows of `stored` from `first_row` on, float32 `[rows, cols]`
    """
    source = assignment.sources[0]
    if stored.scales is None:
        return does_not_fit(checkpoint, source, first_row, values, stored.codec)
    width = stored.scales.group
    for row in range(len(values)):
        for group in range(stored.scales.groups(stored.shape[1])):
            try:
                encode_rows(stored, values[row : row + 1, group * width : (group + 1) * width])
            except LayoutError as error:
                file, tensor, there = locate(checkpoint, source, first_row + row)
                reason = f"row {there}, group {group}: {error.reason}"
                return NotFiniteError(reason, file=file, where=tensor, found=error.found)
    return does_not_fit(checkpoint, source, first_row, values, stored.codec)
