"""The tool's version, and the number that goes into every identity: raise it when the same inputs give other bytes."""

import importlib.metadata

OUTPUT_FORMAT = 2
TOOL = "engineset " + importlib.metadata.version("engineset")
