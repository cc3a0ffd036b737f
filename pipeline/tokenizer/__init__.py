"""Text to token ids and back, and chat prompts, from the metadata of a GGUF."""
