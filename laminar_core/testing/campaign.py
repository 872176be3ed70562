r"""Campaigns over many seeds: each is a job, a configuration, an order of events and disasters.

    report = simulate_seed(7)
    assert report.passed, "\n".join(report.trace)

Everything follows from the seed, so one that failed fails again, to the last turn.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any
from zlib import crc32

from laminar_core.codec.envelope import Compression
from laminar_core.driver.events import CheckpointCompleted, CheckpointFailed
from laminar_core.driver.restart import FixedDelay
from laminar_core.plan.state_options import StateOptions
from laminar_core.protocol.coordinator_config import CoordinatorConfig
from laminar_core.testing.disaster_kinds import KINDS
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.history import History
from laminar_core.testing.invariants import CHECKS, CHECKS_WITHOUT_END, Check, Evidence
from laminar_core.testing.jobs import BuildJob
from laminar_core.testing.scenarios import SCENARIOS
from laminar_core.testing.simulation import Simulation
from laminar_core.testing.store_disasters import STORE_KINDS
from laminar_core.testing.world import NotLiveError
from laminar_core.worker.backends import require_backend
from laminar_core.worker.inflight import SnapshotLimits

TURNS_MAX = 480_000
"""One that needs more is not live. Nearly all take less than 120,000; a function of 450 s beside a
checkpoint every 10 ms takes 179,000, and more if workers of suspended drivers wait beside it."""

SLOW = 10.0
"""The turns of a slow worker last so many times longer."""

SMALL_BUFFER_BYTES = 700
"""A limit for in-flight data that is often exceeded, so that checkpoints are declined."""

SMALL_STATE_BYTES = 4_000
"""A small memory budget, so that rows leave memory early."""

LOSSES = (0, 0, 0, 0, 0, 1, 1, 2)
"""Numbers of times that the whole store disappears; one is drawn."""

FEW_RESTARTS = 25
"""Sooner spent than the store is back, if it stays away for long."""

_RESTARTS_MAX = 1_000
_SALT = 7_919
"""Separates the random numbers of disasters from the world's, which use the seed itself."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The configuration that a seed draws before the run."""

    seed: int
    scenario: str
    parallelism: int
    checkpoint: CoordinatorConfig
    row_ms: float
    limits: SnapshotLimits
    compression: Compression | None
    slow_workers: int
    """Number of slow workers. Those with the highest indices are slow."""
    disasters: tuple[str, ...]
    state: StateOptions = field(default_factory=StateOptions)
    losses: tuple[str, ...] = ()
    """Disasters of the store as a whole."""
    restarts_max: int = _RESTARTS_MAX

    def describe(self) -> str:
        """Return the setting as one line."""
        disasters = ", ".join((*self.disasters, *self.losses))
        config, planned = self.checkpoint, disasters or "nothing goes wrong"
        timeout_ms = config.alignment_timeout_ms
        mode = "aligned" if timeout_ms is None else f"alignment timeout {timeout_ms} ms"
        return (
            f"{self.scenario}, {self.parallelism} workers ({self.slow_workers} slow), "
            f"{self.row_ms:g} ms a row, "
            f"checkpoint every {config.interval_ms} ms ({mode}, {config.max_concurrent} at once), "
            f"snapshots {self.state.snapshots}, {self.state.segments_max} segments, "
            f"state in {self.state.backend}, {planned}"
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that did not hold."""

    check: str
    problem: str


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The result of one seed."""

    setting: Setting
    violations: tuple[Violation, ...]
    hits: Mapping[str, int]
    """Disasters that came to pass, by kind."""
    checkpoints: Mapping[str, int]
    """Completed ones by mode, and others by outcome."""
    generations: int
    turns: int
    simulated_ms: float
    digest: int
    """Digest of every turn and every line of the trace: equal digests are equal runs."""
    trace: tuple[str, ...] = field(repr=False)

    @property
    def passed(self) -> bool:
        """Whether every invariant held."""
        return not self.violations

    def as_dict(self) -> dict[str, Any]:
        """Return the report without the trace, as JSON-compatible values."""
        return {
            "seed": self.setting.seed,
            "passed": self.passed,
            "scenario": self.setting.scenario,
            "setting": self.setting.describe(),
            "violations": [asdict(violation) for violation in self.violations],
            "faults": dict(self.hits),
            "checkpoints": dict(self.checkpoints),
            "generations": self.generations,
            "turns": self.turns,
            "simulated_ms": round(self.simulated_ms, 3),
            "digest": f"{self.digest:08x}",
        }


def draw(
    seed: int,
    scenarios: Mapping[str, BuildJob] = SCENARIOS,
    kinds: Sequence[str] = tuple(KINDS),
    losses: Sequence[str] = tuple(STORE_KINDS),
) -> Setting:
    """Return the setting of ``seed``, among these scenarios and kinds of disaster.

    ``losses`` are drawn from separate random numbers, so that the rest is the same without them.
    """
    dice, store_dice = _dice(seed), _store_dice(seed)
    lost = tuple(store_dice.choices(losses, k=store_dice.choice(LOSSES))) if losses else ()
    alignment_timeout_ms = dice.choice((None, None, 0, 0, 5, 50, 500))
    concurrent = dice.choice((1, 3)) if alignment_timeout_ms is None else 1
    return Setting(
        seed=seed,
        scenario=dice.choice(list(scenarios)),
        parallelism=dice.choice((1, 2, 2, 3, 3, 4)),
        checkpoint=CoordinatorConfig(
            interval_ms=dice.choice((10, 30, 100)),
            min_pause_ms=dice.choice((0, 0, 20)),
            timeout_ms=dice.choice((600_000, 600_000, 2_000)),
            max_concurrent=concurrent,
            tolerable_failures=None,
            alignment_timeout_ms=alignment_timeout_ms,
        ),
        row_ms=dice.choice((0.0, 1.0, 10.0)),
        limits=SnapshotLimits(
            max_inflight_buffer_bytes=dice.choice((SMALL_BUFFER_BYTES, 1 << 29, 1 << 29))
        ),
        compression=dice.choice((None, "lz4", "zstd")),
        slow_workers=dice.choice((0, 0, 0, 1, 1, 2)),
        disasters=tuple(dice.choices(kinds, k=dice.choice((0, 1, 1, 2, 2, 3, 4)))),
        state=_draw_state(dice),
        losses=lost,
        restarts_max=store_dice.choice((FEW_RESTARTS, _RESTARTS_MAX)) if lost else _RESTARTS_MAX,
    )


def _draw_state(dice: Random) -> StateOptions:
    """Chains are short, and RocksDB, which takes a moment to start, is less frequent."""
    return StateOptions(
        snapshots=dice.choice(("full", "incremental", "incremental", "changelog")),
        changelog_interval_ms=dice.choice((5, 20, 60)),
        segments_max=dice.choice((2, 3, 4)),
        compression=dice.choice((None, "lz4", "zstd")),
        backend=dice.choice(("memory", "memory", "memory", "memory", "memory", "rocksdb")),
        memory_bytes=SMALL_STATE_BYTES,
        simulated_files=True,
    )


def simulate_seed(seed: int, scenarios: Mapping[str, BuildJob] = SCENARIOS) -> SeedReport:
    """Run one seed and check every invariant; an unexpected error is a violation, too."""
    setting = draw(seed, scenarios)
    return simulate_setting(setting, scenarios[setting.scenario])


def simulate_setting(setting: Setting, build: BuildJob) -> SeedReport:
    """Run what was drawn, or what a test puts together."""
    return _Run(setting, build).report()


def simulate_seeds(
    seeds: range, scenarios: Mapping[str, BuildJob] = SCENARIOS
) -> Iterator[SeedReport]:
    """Yield one report per seed, as they are completed.

    Raises:
        MissingExtraError: RocksDB is not installed; some seeds keep their state in it.
    """
    require_backend(StateOptions(backend="rocksdb"))
    return (simulate_seed(seed, scenarios) for seed in seeds)


class _Run:
    """The run of one seed."""

    def __init__(self, setting: Setting, build: BuildJob) -> None:
        self._setting = setting
        self._build = build
        disk, job = SimulatedDisk(), build(setting.parallelism)
        if job.plan.loops():  # One that begins while a loop still records ends the older one.
            checkpoint = replace(setting.checkpoint, max_concurrent=1)
            self._setting = setting = replace(setting, checkpoint=checkpoint)
        self.simulation = Simulation(
            job.plan,
            parallelism=setting.parallelism,
            seed=setting.seed,
            checkpoint=setting.checkpoint,
            objects=disk,
            turns_max=TURNS_MAX,
        )
        self.simulation.options = replace(
            self.simulation.options,
            restart=FixedDelay(attempts=setting.restarts_max, pause_ms=10),
            limits=setting.limits,
            inflight_compression=setting.compression,
            state=setting.state,
        )
        slow = range(setting.parallelism)[-setting.slow_workers :] if setting.slow_workers else ()
        self.simulation.paces = dict.fromkeys(slow, SLOW)
        job.burden.row_ms = setting.row_ms
        job.burden.spend = self.simulation.world.spend
        # The order of observers matters: history has to see what a disaster then falsifies.
        self.history = History(self.simulation, disk, job.ledgers, Random(setting.seed))  # noqa: S311
        self.disasters = Disasters(
            self.simulation, job, _dice(setting.seed * _SALT), _store_dice(setting.seed * _SALT)
        )
        for kind in setting.disasters:
            KINDS[kind](self.disasters)
        for kind in setting.losses:
            STORE_KINDS[kind](self.disasters)

    def report(self) -> SeedReport:
        """Run it."""
        violations = tuple(self._violations())
        world = self.simulation.world
        for violation in violations:
            world.note("CHECK", f"{violation.check}: {violation.problem}")
        report = SeedReport(
            setting=self._setting,
            violations=violations,
            hits=dict(sorted(self.disasters.hits.items())),
            checkpoints=dict(sorted(self._checkpoints().items())),
            generations=len(self.history.facts().claims),
            turns=world.turns,
            simulated_ms=world.now_ms - world.trace.start_ms,
            digest=crc32(str(world.digest).encode(), world.trace.digest()),
            trace=tuple(world.trace.lines()),
        )
        self.simulation.close()
        return report

    def _violations(self) -> Iterator[Violation]:
        try:
            self.disasters.run()
            ended_ms = self.simulation.world.now_ms
            self.disasters.let_zombies_speak()
        except (NotLiveError, AssertionError) as error:
            yield Violation("liveness", str(error))
            yield from self._check(CHECKS_WITHOUT_END, self.simulation.world.now_ms)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield Violation("no-unexpected-error", _where(error))
            return
        yield from self._check(CHECKS, ended_ms)

    def _check(self, checks: Mapping[str, Check], ended_ms: float) -> Iterator[Violation]:
        evidence = Evidence(
            build=self._build,
            simulation=self.simulation,
            disasters=self.disasters,
            history=self.history,
            facts=self.history.facts(),
            ended_ms=ended_ms,
            seed=self._setting.seed,
            turns_max=TURNS_MAX,
        )
        for name, check in checks.items():
            yield from (Violation(name, problem) for problem in check(evidence))

    def _checkpoints(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for event in self.simulation.events:
            if isinstance(event, CheckpointCompleted):
                counts[event.mode] += 1
            elif isinstance(event, CheckpointFailed):
                counts[event.outcome] += 1
        return counts


def _dice(seed: int) -> Random:
    return Random(f"disasters {seed}")  # noqa: S311 - a simulation, not a secret


def _store_dice(seed: int) -> Random:
    return Random(f"store {seed}")  # noqa: S311 - a simulation, not a secret


def _where(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{frame.filename.rpartition('laminar_core/')[2]}:{frame.lineno}"
    return f"{type(error).__name__} at {place}: {error}"
