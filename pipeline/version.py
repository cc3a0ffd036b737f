"""The tool's version, and the number in every key: raise it when the same inputs give other bytes, in marker builds too."""

import importlib.metadata

OUTPUT_FORMAT = 3
TOOL = "engineset " + importlib.metadata.version("engineset")
