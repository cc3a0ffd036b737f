"""A vendor directory as a template set: what `template.json` says of ours follows here from containers and `config.json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.checkpoint.protocol import Checkpoint
from pipeline.hashes import HashCache
from pipeline.refit.refused import PlanRefusedError
from pipeline.toolchain.options import CompileOptions
from pipeline.toolchain.template_file import CompiledFrom, Template
from pipeline.toolchain.template_groups import faults_into, walk_package
from pipeline.toolchain.template_package import Package

VENDOR = "vendor"
# keys of a vendor's config.json that say what a checkpoint says as well
_SHARED = ("rope_theta", "layer_types", "sliding_window", "head_dim", "num_attention_heads", "num_key_value_heads")


def describe_package(package: Package, weights: Checkpoint, origin: CompiledFrom, hashes: HashCache) -> Template:
    """What the package is, all of it read from its own files.

    Parameters
    ----------
    weights : the checkpoint that the package was built from
    origin : its files

    Returns
    -------
    its options have the lengths of the calls; of weights and scales they say nothing, that is decoded (`decoded_options`)

    Raises
    ------
    PlanRefusedError : engines that are missing, no engines, or of other sizes than their siblings or the checkpoint; all of them
    """
    faults = list(_differences(package, weights))
    calls, version, found = walk_package(package, weights.config)
    faults += found
    options = CompileOptions()
    if calls is not None:
        with faults_into(faults):
            room = calls.kv_cache_len - calls.prefill_len  # a call whose tokens do not fit the cache is never made
            ladder = tuple(prefix for prefix in calls.ladder if prefix <= room)
            options = CompileOptions(
                kv_cache_len=calls.kv_cache_len, prefill_len=calls.prefill_len, last_kv_cache_len=ladder
            )
    if faults:
        raise PlanRefusedError(faults)
    files = {package.names.file(kind, layer): hashes.sha256(path) for kind, layer, path in package.engines()}
    files |= {name: hashes.sha256(path) for name, path in package.carried().items()}
    return Template(VENDOR, version, options, weights.config, None, files, origin)


def _differences(package: Package, weights: Checkpoint) -> Iterator[str]:
    """`config.json` against the checkpoint."""
    config, path = weights.config, package.config_file
    numbers: dict[str, tuple[Any, Any]] = {
        "axmodel_num": (package.layers, config.num_hidden_layers),
        "tokens_embed_num": (package.vocabulary, config.vocab_size),
        "tokens_embed_size": (package.hidden, config.hidden_size),
    }
    text = package.fields.get("text_config")
    for key in _SHARED:
        said = package.fields.get(key, text.get(key) if isinstance(text, dict) else None)
        known = getattr(config, key)
        if said is not None and known:
            numbers[key] = (tuple(said) if isinstance(said, list) else said, known)
    for key, (said, known) in numbers.items():
        if said != known:
            yield f"{path}: {key}: the package has {said}, the checkpoint that it was built from has {known}"
