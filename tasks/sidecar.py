"""The sidecar of the published loader."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import luigi

from layouts.axl4 import write_axl4
from layouts.sidecar import read_layout
from pipeline import paths
from pipeline.container.blob import common_offset
from pipeline.engineset.names import AXL4_FILE
from pipeline.errors import AxmodelError
from pipeline.files import make_way
from pipeline.seal import seal_damage, write_seal
from pipeline.toolchain.kinds import LAYER
from tasks.base import EngineSetTask
from tasks.layouts import DecodeLayout
from tasks.templates import CompileTemplate


class WriteSidecar(EngineSetTask):
    """The published loader's sidecar of a layer, `layout_v4.bin`, with the file offsets of the template's layers."""

    def requires(self) -> Iterator[luigi.Task]:
        yield DecodeLayout(kind=LAYER, **self.shared())
        yield CompileTemplate(**self.shared())

    def output(self) -> luigi.LocalTarget:
        return self.target(paths.seal_path(paths.axl4_path(self.build, self.job)))

    def damage(self) -> str | None:
        return seal_damage(Path(self.output().path), self.job.hashes)

    def work(self) -> None:
        job, path = self.job, make_way(paths.axl4_path(self.build, self.job))
        layout = read_layout(paths.layout_path(self.build, job, LAYER))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lost = write_axl4(path, layout, self._offset())
        except AxmodelError as error:  # of engines that are not ours: the loader has one offset for all layers
            print(f"{AXL4_FILE}: not written: {error}", file=sys.stderr, flush=True)
            write_seal(Path(self.output().path), [], job.hashes)
            return
        if lost:
            print(f"{AXL4_FILE}: {len(lost)} things it cannot hold, such as {lost[0]}", file=sys.stderr, flush=True)
        write_seal(Path(self.output().path), [path], job.hashes)

    def _offset(self) -> int:
        layers = range(self.job.template_model.num_hidden_layers)
        return common_offset([paths.template_engine(self.build, self.job, LAYER, layer) for layer in layers])
