"""Which initializers an NPU node names, in the three generations of the container (docs/container.md).

7.0 and 1.6 hold JSON under `npu_graph_info`: `dotneus[].neu_key` names microcode, `dotneus[].extra_inputs[]` constants, in
1.6 of "type" "DotNeuInputConst". 1.1 holds no JSON of that kind: `neu` names the one initializer that is both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.axmodel import onnx_fields as onnx
from pipeline.axmodel.graph import Graph
from pipeline.axmodel.wire import text
from pipeline.container.mapped import Buffer
from pipeline.errors import AxmodelError

INFO, OLD = "npu_graph_info", "neu"
MICROCODE_KEY, CONST_KEY, CONST_TYPE = "neu_key", "const_data_key", "DotNeuInputConst"


@dataclass(frozen=True)
class Keys:
    """Names of initializers, each once: microcode and constant inputs; `generation` as the node's attributes tell it."""

    generation: str
    microcode: tuple[str, ...]
    constants: tuple[str, ...]


def node_keys(data: Buffer, node: onnx.Node, graph: Graph) -> Keys:
    """Raises AxmodelError for attributes of another form than the three generations have."""
    where = f"node {node.name!r}"
    if INFO in node.attributes:
        return _described(attribute_text(data, node, INFO), graph, f"{where} attribute {INFO}")
    if OLD in node.attributes:
        named = _named(attribute_text(data, node, OLD), graph, f"{where} attribute {OLD}")
        return Keys("1.1", *named)
    found = ", ".join(sorted(node.attributes)) or "no attributes"
    raise AxmodelError("names no microcode", where=where, expected=f"attribute {INFO} or {OLD}", found=found)


def attribute_text(data: Buffer, node: onnx.Node, name: str) -> str:
    """The one string of an attribute. Raises AxmodelError for another kind, or not UTF-8."""
    where = f"node {node.name!r} attribute {name}"
    found = node.attributes[name]
    if len(found.strings) != 1:
        kinds = f"{len(found.strings)} strings, field numbers {list(found.numbers)}"
        raise AxmodelError("not one string", where=where, found=kinds)
    return text(data, found.strings[0], where)


def _described(info: str, graph: Graph, where: str) -> Keys:
    dotneus = _dotneus(_json(info, where), where)
    microcode = [_key(dotneu, where) for dotneu in dotneus]
    inputs = [item for dotneu in dotneus for item in _inputs(dotneu, where)]
    constants = [key for item in inputs for key in _constant(item, graph, where)]
    generation = "1.6" if any(item.get("type") == CONST_TYPE for item in inputs) else "7.0"
    return Keys(generation, _once(microcode), _once(constants))


def _named(value: str, graph: Graph, where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """`neu` of 1.1: the name itself, or JSON that holds names, in a form of its own or as `npu_graph_info` has them."""
    if value in graph.initializers:
        return (value,), ()
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = value
    if isinstance(found, dict) and "dotneus" in found:
        keys = _described(value, graph, where)
        return keys.microcode, keys.constants
    named = [text for text in _texts(found) if text in graph.initializers]
    if not named:
        known = ", ".join(graph.initializers) or "none"
        raise AxmodelError(f"names no initializer of the file: {value[:80]!r}", where=where, found=known)
    return _once(named), ()


def _texts(value: Any) -> Iterator[str]:
    """Every text of a JSON value that is not a key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _json(info: str, where: str) -> Any:
    try:
        return json.loads(info)
    except (ValueError, RecursionError) as error:
        raise AxmodelError(f"not the JSON of an NPU graph: {error}", where=where) from None


def _dotneus(info: Any, where: str) -> list[dict[str, Any]]:
    found = info.get("dotneus") if isinstance(info, dict) else None
    if isinstance(found, list) and found and all(isinstance(item, dict) for item in found):
        return found
    given = info if found is None else found
    raise AxmodelError("not the JSON of an NPU graph", where=where, expected="dotneus", found=_short(given))


def _key(dotneu: dict[str, Any], where: str) -> str:
    key = dotneu.get(MICROCODE_KEY)
    if not isinstance(key, str):
        raise AxmodelError(f"a dotneu without a {MICROCODE_KEY}", where=where, found=_short(dotneu))
    return key


def _inputs(dotneu: dict[str, Any], where: str) -> list[dict[str, Any]]:
    found = dotneu.get("extra_inputs") or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise AxmodelError("extra_inputs are not a list of objects", where=where, found=_short(found))
    return found


def _constant(item: dict[str, Any], graph: Graph, where: str) -> list[str]:
    """The initializer that an extra input names; none for an input that is no constant."""
    if CONST_KEY in item:
        if not isinstance(item[CONST_KEY], str):
            raise AxmodelError(f"{CONST_KEY} is not text", where=where, found=_short(item))
        return [item[CONST_KEY]]
    if item.get("type") != CONST_TYPE:
        return []
    named = [value for value in item.values() if isinstance(value, str) and value in graph.initializers]
    if len(named) != 1:
        raise AxmodelError("a constant input does not name one initializer", where=where, found=_short(item))
    return named


def _once(names: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _short(value: Any) -> str:
    try:
        return json.dumps(value)[:120]
    except RecursionError:
        return "too deep"
