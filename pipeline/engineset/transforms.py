"""In words: which tensors of which files an engine weight is made of, and what is done to them on the way."""

from __future__ import annotations

from dataclasses import dataclass

from layouts.stored import StoredTensor
from pipeline.checkpoint.gguf_checkpoint import GgufCheckpoint
from pipeline.checkpoint.hf_checkpoint import HfCheckpoint
from pipeline.checkpoint.protocol import Checkpoint, locate
from pipeline.checkpoint.wrapped import innermost
from pipeline.model import HEAD, ModelConfig, TensorSpec, architecture_of
from pipeline.refit.plan import Assignment, EnginePlan


@dataclass(frozen=True)
class Part:
    """A tensor of the source: its HF name, the file's own name for it, the file, its type there."""

    name: str
    stored_as: str
    file: str
    type: str


def parts_of(checkpoint: Checkpoint, item: Assignment) -> list[Part]:
    """The tensors that a weight is made of."""
    located = ((name, *locate(checkpoint, name, 0)[:2]) for name in item.sources)
    return [Part(name, there, file.name, checkpoint.type_name(name)) for name, file, there in located]


def transforms_of(checkpoint: Checkpoint, plan: EnginePlan, item: Assignment, stored: StoredTensor | None) -> list[str]:
    """What becomes of the numbers before they are encoded, in order; nothing for most weights.

    Parameters
    ----------
    stored : the weight's place, None where it is not known yet
    """
    found = [step for source in item.sources for step in _of_source(checkpoint, plan, source)]
    if item.factor != 1.0:
        found.append(f"times {item.factor:.7g}")
    found += [f"gain of {gain} folded in" for gain in item.sources[1:]]
    if stored is not None and stored.order:
        found.append(f"axes {list(stored.order)} of {list(stored.dims)}")
    return found


def _of_source(checkpoint: Checkpoint, plan: EnginePlan, source: str) -> list[str]:
    inner, spec, found = innermost(checkpoint), _spec(checkpoint.config, plan, source), list[str]()
    if spec is not None and spec.permuted and isinstance(inner, GgufCheckpoint):
        found.append("rows of each head de-interleaved")
    if spec is not None and spec.plus_one and isinstance(inner, HfCheckpoint):
        found.append(f"{source} plus 1")
    if "LoRA" in checkpoint.type_name(source):
        found.append(f"adapter merged into {source}")
    if source == HEAD.name and checkpoint.config.kept_rows:
        found.append(f"{checkpoint.config.kept_rows} rows kept")
    return found


def _spec(config: ModelConfig, plan: EnginePlan, source: str) -> TensorSpec | None:
    architecture = architecture_of(config)
    named = {spec.hf_name(plan.layer): spec for spec in architecture.layer}
    return (named | {spec.name: spec for spec in architecture.post()}).get(source)
