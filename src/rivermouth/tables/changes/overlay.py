"""Versions of a table that follows changes: a snapshot, and layers of changed rows above it.

    v1793830112000000/                       the snapshot, as `snapshot_store` writes it
    v1793830112000000/key/*.npy              which row has which key
    v1793830112000000/changes/00000007_3f2a/ a step: the seventh since the snapshot was made
        step.json                            the feed's position, the layers, what was counted
        gone/00000003_77c0.npy               which rows of a layer are gone, one bit a row
        layer/                               the rows that it wrote: rows, index, keys
    CURRENT                                  v1793830112000000_00000007_3f2a, the newest step

A step is complete in itself: its layers are the snapshot (00000000), and those that it or earlier
steps wrote. Nothing is changed once it is there. Two hosts that make a step at the same time make
two, each of which is true.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from rivermouth.kernels.arrays import Bools, Bytes, Ints, has_bit, with_bits
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.keys.key_index import KeyIndex
from rivermouth.kernels.table_join import matching
from rivermouth.tables import files
from rivermouth.tables.cache.snapshot_store import (
    CHOOSING,
    STEPS,
    SnapshotStore,
    Version,
    array_of,
    mapped,
    write,
)
from rivermouth.tables.changes.effect import ENDED
from rivermouth.tables.versions import base_of, prune, version_name, write_pointer
from rivermouth.tables.worker_cache import WorkerCache

FORMAT = 1
BASE = "00000000"  #: the name of the lowest layer
_KEPT = 3  # steps: the newest, and those that running tasks may still be opening


@dataclass(frozen=True)
class Step:
    """What a version is made of.

    Parameters
    ----------
    position
        Up to where the feed is in it.
    loaded
        When the feed was read, in seconds since 1970.
    layers
        The names of its layers, the lowest first.
    is_last
        Whether the feed had no more changes then.
    counts
        What was applied, left out and mended since the table was first loaded, and how often.
    freshness
        How long after they were made the changes of this step could be seen: seconds, the median
        and the largest; None where that is not known.
    """

    position: Any
    loaded: float
    layers: tuple[str, ...] = (BASE,)
    is_last: bool = True
    counts: Mapping[str, int] = field(default_factory=dict)
    freshness: tuple[float, float] | None = None


@dataclass(frozen=True)
class StoredLayer:
    """A layer of one version: its rows, mapped, and which of them are gone."""

    name: str
    path: Path
    version: Version
    gone: Bytes | None

    @property
    def rows(self) -> pa.Table:
        """All its rows, those that are gone, too."""
        return self.version.rows

    @cached_property
    def count_gone(self) -> int:
        """How many rows are gone."""
        return 0 if self.gone is None else int(np.bitwise_count(self.gone).sum())

    @property
    def count_live(self) -> int:
        """How many rows are there."""
        return int(self.rows.num_rows) - self.count_gone

    @property
    def hidden(self) -> Bools | None:
        """Which rows say that there is none from then on; None where no history is kept."""
        if ENDED not in self.rows.column_names:
            return None
        return np.asarray(array_of(self.rows, ENDED).to_numpy(zero_copy_only=False))

    def live(self) -> pa.Table:
        """The rows that are not gone, in their order."""
        if self.gone is None:
            return self.rows
        is_gone = has_bit(self.gone, np.arange(self.rows.num_rows))
        return self.rows.take(pa.array(np.flatnonzero(~is_gone)))

    def without(self, rows: Ints) -> StoredLayer:
        """The layer when these rows are gone, too."""
        if not len(rows):
            return self
        empty = np.zeros((self.rows.num_rows + 7) // 8, np.uint8)
        return replace(self, gone=with_bits(empty if self.gone is None else self.gone, rows))

    def rows_of(self, changed: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
        """Pairs (row of `changed`, row) of rows that are there and have that key."""
        known = self.keys(names)
        keys = [changed[name].combine_chunks() for name in names]
        at, rows = known.expand(known.lookup(keys))
        if self.gone is None:
            return at, rows
        is_there = ~has_bit(self.gone, rows)
        return at[is_there], rows[is_there]

    def keys(self, names: Sequence[str]) -> KeyIndex:
        """Which row has which key."""
        arrays = {
            file.stem: np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
            for file in (self.path / "key").glob("*.npy")
        }
        return key_index.from_arrays(arrays, [self.rows.schema.field(name).type for name in names])


@dataclass(frozen=True)
class LayeredVersion:
    """One version of a table that follows changes, open."""

    name: str
    number: int
    step: Step
    layers: tuple[StoredLayer, ...]
    loaded: float
    index_rows: Callable[[pa.Table], tuple[pa.Table, matching.Index]]

    @cached_property
    def flat(self) -> Version:
        """All rows that are there in one table, with an index made here and now."""
        began = time.perf_counter()
        rows, index = self.index_rows(self.live())
        return Version(self.number, self.loaded, time.perf_counter() - began, rows, index)

    def live(self) -> pa.Table:
        """All rows that are there, by layer."""
        schema = self.layers[0].rows.schema
        return pa.concat_tables([layer.live().cast(schema) for layer in self.layers])

    def report(self, refresh: float | None) -> dict[str, Any]:
        """What the metrics say of it; `refresh` is how often it should be read, in seconds."""
        base, above = self.layers[0], self.layers[1:]
        gone = base.count_gone
        overlay = sum(layer.count_live for layer in above)
        median, largest = self.step.freshness or (None, None)
        return {
            "rows": base.count_live + overlay,
            "version": self.number,
            "age_seconds": time.time() - self.loaded,
            "load_seconds": base.version.seconds,
            "refresh_seconds": refresh,
            "index": base.version.index.kind,
            "changes": {
                "layers": len(above),
                "overlay_rows": overlay,
                "gone_rows": gone,
                "caught_up": self.step.is_last,
                "freshness_seconds": median,
                "freshness_max_seconds": largest,
                **self.step.counts,
            },
        }


def write_keyed(
    folder: Path, rows: pa.Table, index: matching.Index, keys: KeyIndex, loaded: float, took: float
) -> None:
    """Write a layer: its rows, their index, and which of them has which key."""
    write(folder, rows, index, loaded=loaded, seconds=took)
    (folder / "key").mkdir()
    for name, array in keys.arrays().items():
        np.save(folder / "key" / f"{name}.npy", array, allow_pickle=False)


@dataclass(frozen=True)
class OverlayStore(SnapshotStore):
    """The versions of a table that follows changes, on this host and where they are shared."""

    def step(self, version: str) -> Step:
        """What a version is made of."""
        about = json.loads((self._step_folder(version) / "step.json").read_text())
        del about["format"]
        freshness = about.pop("freshness")
        layers = tuple(about.pop("layers"))
        return Step(**about, layers=layers, freshness=None if freshness is None else (*freshness,))

    def loaded(self, version: str) -> float:
        """When the feed was read for a version, or last had nothing new."""
        read = self.step(version).loaded
        confirmed = files.read_json(f"{self.home}/confirmed.json") or {}
        return max(read, float(confirmed.get(version, read)))

    def read_at(self, version: str) -> float:
        """When the table itself was read for a version."""
        return super().loaded(base_of(version))

    def fetch(self, version: str) -> None:
        """Have a version on this host.

        Raises
        ------
        FileNotFoundError
            If it has been removed.
        """
        super().fetch(base_of(version))
        name = _step_name(version)
        self._fetch_step(base_of(version), name)
        for layer in self.step(version).layers[1:]:
            self._fetch_step(base_of(version), layer)

    def opened(
        self, version: str, index_rows: Callable[[pa.Table], tuple[pa.Table, matching.Index]]
    ) -> LayeredVersion:
        """Map a version; layers that this process has open already stay open."""

        def make() -> LayeredVersion:
            step, known = self.step(version), _layers.find(self.home) or {}
            layers = []
            for name in step.layers:
                path = self._layer_path(version, name)
                opened = known.get(path) or mapped(path, 0)
                gone = self._step_folder(version) / "gone" / f"{name}.npy"
                bits = np.load(gone, allow_pickle=False) if gone.exists() else None
                layers.append(StoredLayer(name, path, opened, bits))
            _layers.put(self.home, {layer.path: layer.version for layer in layers})
            base, number = base_of(version), int(_step_name(version).partition("_")[0])
            return LayeredVersion(
                version, int(base.removeprefix("v")) + number, step, tuple(layers), step.loaded,
                index_rows,
            )  # fmt: skip

        made = _versions.get(self.home, make, version=version)
        return replace(made, loaded=self.loaded(version))

    def add_base(self, made: float, step: Step, fill: Callable[[Path], None]) -> str:
        """Write a snapshot and its first step; it is not the newest until it is published."""
        base = version_name(made)
        while (self.home / base).exists():  # made within the same microsecond, by a coarse clock
            made += 1e-6
            base = version_name(made)
        with self.staging(base) as staging:
            fill(staging)
            (staging / STEPS).mkdir()
            if self.remote is not None:
                self.copy_up(staging, base)
        return self.add_step(base, 0, step, {}, None)

    def add_step(
        self,
        version: str,
        number: int,
        step: Step,
        gone: Mapping[str, Bytes],
        fill: Callable[[Path], None] | None,
    ) -> str:
        """Write a step above a version's snapshot; `fill` writes its layer, if it has one.

        The layer gets the step's name, and is the last of its layers.
        """
        base = base_of(version)
        name = f"{number:08d}_{uuid.uuid4().hex[:8]}"
        with self.staging(f"{base}/{STEPS}/{name}") as staging:
            if fill is not None:
                (staging / "layer").mkdir()
                fill(staging / "layer")
                step = replace(step, layers=(*step.layers, name))
            (staging / "gone").mkdir()
            for layer, bits in gone.items():
                own = name if layer == "" else layer
                np.save(staging / "gone" / f"{own}.npy", bits, allow_pickle=False)
            about = {"format": FORMAT, **vars(step)}
            (staging / "step.json").write_text(json.dumps(about))
            if self.remote is not None:
                self.copy_up(staging, f"{base}/{STEPS}/{name}")
        return f"{base}_{name}"

    def publish(self, version: str) -> None:
        """Make a version the newest, in one step for all readers, and remove what nobody needs."""
        write_pointer(str(self.home), version)
        needed = {version}
        if self.remote is not None:
            write_pointer(self.remote, version)
        with self.locked(wait=True, name=CHOOSING):  # no batch is choosing a version meanwhile
            needed |= self.batches.versions()
            bases = {base_of(one) for one in needed}
            for folder in (str(self.home), *([] if self.remote is None else [self.remote])):
                prune(folder, 2, bases)
            for base in bases:
                self._prune_steps(base, needed)

    def _prune_steps(self, base: str, needed: set[str]) -> None:
        """Remove the steps of a snapshot that no version needs, on this host and where shared."""
        names = sorted(path.name for path in (self.home / base / STEPS).glob("[0-9]*"))
        kept = {*names[-_KEPT:], *(_step_name(one) for one in needed if base_of(one) == base)}
        for name in tuple(kept):
            with contextlib.suppress(FileNotFoundError):  # another host's
                kept.update(self.step(f"{base}_{name}").layers)
        for name in set(names) - kept:
            shutil.rmtree(self.home / base / STEPS / name, ignore_errors=True)
            if self.remote is not None:
                system, root = files.filesystem(self.remote)
                with contextlib.suppress(OSError):
                    system.delete_dir(f"{root}/{base}/{STEPS}/{name}")

    def _fetch_step(self, base: str, name: str) -> None:
        path = self.home / base / STEPS / name
        if path.exists():
            return
        if self.remote is None:
            raise FileNotFoundError(path)
        system, root = files.filesystem(self.remote)
        with self.locked(wait=True, name="fetching"):
            if path.exists():
                return
            there = f"{root}/{base}/{STEPS}/{name}"
            if system.get_file_info(f"{there}/step.json").type == pyarrow.fs.FileType.NotFound:
                raise FileNotFoundError(there)
            path.parent.mkdir(exist_ok=True)
            with self.staging(f"{base}/{STEPS}/{name}") as staging:
                self.copy_down(f"{base}/{STEPS}/{name}", staging)

    def _step_folder(self, version: str) -> Path:
        return self.home / base_of(version) / STEPS / _step_name(version)

    def _layer_path(self, version: str, layer: str) -> Path:
        base = self.home / base_of(version)
        return base if layer == BASE else base / STEPS / layer / "layer"


def _step_name(version: str) -> str:
    return version.partition("_")[2]


#: the layers that this process has mapped, of each store; and the newest version of each
_layers: WorkerCache[Path, dict[Path, Version]] = WorkerCache(size=16)
_versions: WorkerCache[Path, LayeredVersion] = WorkerCache(size=16)
