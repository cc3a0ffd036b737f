"""The message under the metadata key `extra_data`: what was read in the two public 7.0 files (docs/container.md).

It repeats what the graph says and is not needed to find the weights, so a message of another form is no fault.
"""

from __future__ import annotations

import base64
from typing import Any

from pipeline.axmodel.wire import LENGTH, VARINT, Field, fields, text
from pipeline.container.mapped import Buffer
from pipeline.errors import AxmodelError

KEY = "extra_data"
_WHERE = f"metadata {KEY}"
_IO, _BATCH, _SUBGRAPH, _CHIP = 1, 2, 3, 4


def read_extra_data(metadata: dict[str, str]) -> dict[str, Any] | None:
    """Inputs, outputs, batch, subgraphs with their initializers, chip number; None for no message or one of another form."""
    try:
        data = memoryview(base64.b64decode(metadata[KEY], validate=True))
        return _read(data)
    except (KeyError, ValueError, AxmodelError):
        return None


def _read(data: Buffer) -> dict[str, Any]:
    found: dict[str, Any] = {"inputs": [], "outputs": [], "batch": "", "subgraphs": [], "chip": 0}
    for field in fields(data, 0, len(data), _WHERE):
        if field.number == _IO:
            way = "inputs" if _number(data, field, 2) == 2 else "outputs"
            found[way].append(_text(data, field, 1))
        elif field.number == _BATCH:
            found["batch"] = text(data, field, _WHERE)
        elif field.number == _SUBGRAPH:
            dotneus = [_dotneu(data, part) for part in _parts(data, field, 10)]
            found["subgraphs"].append({"name": _text(data, field, 1), "dotneus": dotneus})
        elif field.number == _CHIP:
            found["chip"] = _number(data, field, 3)
    return found


def _dotneu(data: Buffer, field: Field) -> dict[str, Any]:
    constants = [_text(data, part, 3) for part in _parts(data, field, 3)]
    return {"microcode": _text(data, field, 1), "batch": _number(data, field, 2), "constants": constants}


def _parts(data: Buffer, field: Field, number: int) -> list[Field]:
    if field.kind != LENGTH:
        raise AxmodelError("not a message", where=_WHERE, offset=field.start)
    return [part for part in fields(data, field.start, field.stop, _WHERE) if part.number == number]


def _text(data: Buffer, field: Field, number: int) -> str:
    found = _parts(data, field, number)
    return text(data, found[-1], _WHERE) if found else ""


def _number(data: Buffer, field: Field, number: int) -> int:
    found = [part for part in _parts(data, field, number) if part.kind == VARINT]
    return found[-1].value if found else 0
