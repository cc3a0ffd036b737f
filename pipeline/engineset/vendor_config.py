"""`config.json` and `post_config.json` as the vendor's runtime expects them (axclrt facts, section 6)."""

from __future__ import annotations

import json
from typing import Any

from pipeline.engineset.names import CONFIG_FILE, POST_CONFIG_FILE, VOCAB_KEEP_FILE, EngineNames
from pipeline.model import ModelConfig

# Greedy: both sampling flags off. The numbers are the vendor's defaults.
_POST = {
    "enable_temperature": False,
    "temperature": 0.9,
    "enable_repetition_penalty": False,
    "repetition_penalty": 1.2,
    "penalty_window": 20,
    "enable_top_p_sampling": False,
    "top_p": 0.8,
    "enable_top_k_sampling": False,
    "top_k": 10,
}


def vendor_files(name: str, config: ModelConfig, engines: EngineNames, tokenizer: str | None) -> dict[str, bytes]:
    """File name -> content.

    Parameters
    ----------
    name : of the model
    engines : what its files are called
    tokenizer : name of the tokenizer file in the set, None where the source carries none
    """
    fields: dict[str, Any] = {
        "model_name": name,
        "tokenizer_type": "huggingface" if tokenizer else "none",
        "url_tokenizer_model": tokenizer or "",
        "template_filename_axmodel": engines.layer,
        "axmodel_num": config.num_hidden_layers,
        "filename_post_axmodel": engines.post,
        "filename_tokens_embed": engines.embedding,
        "tokens_embed_num": config.vocab_size,
        "tokens_embed_size": config.hidden_size,
        "post_config_path": POST_CONFIG_FILE,
        "use_mmap_load_embed": True,
        "devices": [0],
    }
    if config.bos_token_id is not None:
        fields["bos_token_id"] = config.bos_token_id
    if config.eos_token_ids:
        fields["eos_token_id"] = list(config.eos_token_ids)
    if config.layer_types:
        fields |= {"layer_types": list(config.layer_types), "sliding_window": config.sliding_window}
    if config.kept_rows:
        fields["filename_vocab_keep"] = VOCAB_KEEP_FILE
    return {CONFIG_FILE: _text(fields), POST_CONFIG_FILE: _text(_POST)}


def _text(fields: dict[str, Any]) -> bytes:
    return (json.dumps(fields, indent=2) + "\n").encode()
