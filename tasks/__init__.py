"""The DAG of the architecture as Luigi tasks: `luigi --module tasks BuildEngineSet --config configs/….toml`."""

import tasks.settings  # noqa: F401 - before Luigi reads its configuration
from tasks.engineset import BuildEngineSet, CheckPlan, PatchEmbedding, PatchLayer, PatchPost
from tasks.layouts import BuildMarkers, DecodeLayout
from tasks.sidecar import WriteSidecar
from tasks.templates import CompileTemplate, ConfirmTemplate, WalkTemplate

__all__ = [
    "BuildEngineSet",
    "BuildMarkers",
    "CheckPlan",
    "CompileTemplate",
    "ConfirmTemplate",
    "DecodeLayout",
    "PatchEmbedding",
    "PatchLayer",
    "PatchPost",
    "WalkTemplate",
    "WriteSidecar",
]
