"""The JSON of ``laminar bench``: the figures of a benchmark, with time, machine and load."""

import statistics
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.result import Result
from laminar_core.objectstore.local import LocalObjectStore

RESULTS = Path(__file__).with_name("results")
"""The results that docs/benchmarks.md shows: one file per benchmark."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Machine(_Model):
    """The machine, and the versions of Laminar and of the software that runs it."""

    system: str
    cores: int
    memory_bytes: int
    python: str
    java: str
    pyspark: str
    pyarrow: str
    laminar: str


class Figure(_Model):
    """One measured number, by repetition."""

    name: str
    unit: str
    better: Literal["higher", "lower"]
    target: float | None = None
    values: tuple[float, ...] = Field(min_length=1)

    @property
    def median(self) -> float:
        """The median of all repetitions."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None without one."""
        return Result(self.name, self.median, self.unit, self.better, self.target).met


class Record(_Model):
    """The figures of one benchmark, and the conditions under which they were measured."""

    benchmark: str
    command: str
    began: datetime
    """In UTC."""
    ended: datetime
    machine: Machine
    load_before: float | None
    """The load average of one minute; None if the command did not note it."""
    load_after: float | None
    conditions: str = ""
    """Other work on the machine, in words; required if a load is None."""
    runs: int = Field(ge=1)
    figures: tuple[Figure, ...]

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.began.utcoffset() is None or self.ended.utcoffset() is None:
            raise ValueError("times are in UTC, with their offset")
        if None in (self.load_before, self.load_after) and not self.conditions:
            raise ValueError("without a load, the conditions say how busy the machine was")
        return self

    def figure(self, name: str) -> Figure | None:
        """Return a figure by its name, None if it was not measured."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def save(self, folder: Path) -> Path:
        """Write the record into a folder, whole, in place of an older one of the benchmark."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.benchmark}.json"
        LocalObjectStore(folder).put(name, f"{self.model_dump_json(indent=1)}\n".encode())
        return folder / name


def figures_of(runs: Iterable[Iterable[Result]]) -> tuple[Figure, ...]:
    """Return the figures of all runs: each with the values of all rounds of all runs."""
    found: dict[str, Figure] = {}
    for result in (result for run in runs for result in run):
        values = result.values or (result.value,)
        before = found[result.name].values if result.name in found else ()
        found[result.name] = Figure(
            name=result.name,
            unit=result.unit,
            better=result.better,
            target=result.target,
            values=before + values,
        )
    return tuple(found.values())


def read_records(folder: Path = RESULTS) -> Mapping[str, Record]:
    """Return the stored records by benchmark."""
    records = [Record.model_validate_json(p.read_text()) for p in sorted(folder.glob("*.json"))]
    return {record.benchmark: record for record in records}
