"""The machine, its programs, and whether the card's bridge is on its bus."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from pipeline.environment import cores, memory
from pipeline.hardware.sections import Findings
from pipeline.version import TOOL

PACKAGES = ("numpy", "ml_dtypes", "onnx", "luigi", "click", "msgspec")
CARD_ID = ("0x1f4b", "0x0650")
_BUS = Path("/sys/bus/pci/devices")


def describe_machine(found: Findings) -> None:
    """Fills in system, processor, memory, versions, and the number of cards on the PCI bus."""
    found.data |= {
        "tool": TOOL,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cores": cores(),
        "memory": {name: memory().get(name) for name in ("MemTotal", "MemAvailable", "SwapTotal")},
        "packages": {name: _version(name) for name in PACKAGES},
        "cards_on_bus": _cards(_BUS),
    }


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cards(bus: Path) -> int | None:
    """PCI devices with the card's vendor and device id (axclrt facts); None without such a bus."""
    if not bus.is_dir():
        return None
    return sum(_ids(device) == CARD_ID for device in bus.iterdir())


def _ids(device: Path) -> tuple[Any, ...]:
    try:
        return tuple((device / name).read_text().strip() for name in ("vendor", "device"))
    except OSError:
        return ()
