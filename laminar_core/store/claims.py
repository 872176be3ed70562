"""Claims: who owns a job, and the checks that it still does. See ``protocol.recovery``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from laminar_core.codec.digest import sha256_hex
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.recovery import (
    OwnerSigns,
    Predecessor,
    RefuseClaim,
    decide_claim,
    why_unexpected,
)
from laminar_core.protocol.types import Generation
from laminar_core.records.actor import Actor
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import GenerationBase, GenerationClaim, Owner
from laminar_core.records.paths import JobPaths, generation_in, number_in
from laminar_core.records.record import JsonObject
from laminar_core.records.spark_application import SparkApplication
from laminar_core.store.bases import complete_copy, create_base
from laminar_core.store.owner import is_running, is_visible
from laminar_core.store.records import bytes_in, create_or_confirm, read_record
from laminar_core.store.retention_log import RetentionLog

OBSERVATION_MS = 5_000
"""How long a heartbeat may stay unchanged before its owner counts as gone."""
_OBSERVATION_STEP_MS = 250

WaitMs = Callable[[float], None]
"""Wait that many milliseconds; a real clock's sleep, or a simulated one."""
Announce = Callable[[Generation], AuditRef]
"""Writes down which generation is about to be claimed; if it raises, nothing is."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The applicant for a job. ``owner`` comes from ``this_process`` and is used for one claim."""

    owner: Owner
    actor: Actor
    code_version: str
    claimed_at_ms: int
    announced: AuditRef | None = None
    spark: SparkApplication | None = None
    """The application that the workers run in; None: it ends with this process."""
    default_retention: JsonObject | None = None
    """The retention policy for completed checkpoints if the start named none."""


class Claims:
    """The claims of one job: the newest generation owns it. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, paths: JobPaths) -> None:
        self._objects = objects
        self._paths = paths
        self._job = paths.job
        self._own_claims: dict[Generation, bytes] = {}
        """The bytes of each claim that was made through this object."""

    def newest(self) -> Generation | None:
        """Return the generation that owns the job; None if it never ran."""
        return max(self.claimed(), default=None)

    def claim(
        self,
        claimant: Claimant,
        *,
        wait_ms: WaitMs,
        take_over: bool = False,
        announce: Announce | None = None,
        above: Generation | None = None,
        expected: Generation | None = None,
    ) -> Generation:
        """Become the owner of the job and fence every earlier generation.

        If the previous owner seems to run on another machine, its heartbeat is watched for up to
        ``OBSERVATION_MS``. ``take_over`` claims the job even if the owner is alive. A supervisor
        that starts the job again ends its own generation first. ``announce`` writes the claim into
        the audit log before it takes effect. ``above`` is the generation of another job that this
        one continues: object names of that generation are not used again. ``expected`` refuses the
        claim if it is not the newest generation; of all claimants that expect the same, one gets
        the job.

        Raises:
            FencedError: the first claim of this job was overtaken by a higher one.
            ConfigurationError: a live driver owns the job, or claimed it at the same moment; or
                ``expected`` is not the newest generation.
            StorageUnavailable: the store did not answer, or is no longer the one that had the
                newest generation, and the claim may have been made: call again with the same
                claimant.
        """
        newest, lowest = self.last(), Generation((above or 0) + 1)
        found = self._claim_bytes(newest)
        claim = self._readable(newest)
        if newest is None or claim is None or claim.owner != claimant.owner:
            self._refuse_unexpected(newest, claim, expected)
            generation = self._next(newest, claim, wait_ms, take_over=take_over)
            self._check_predecessor(newest, found)  # Waiting took a while.
            if announce is not None:
                claimant = replace(claimant, announced=announce(max(generation, lowest)))
            if expected is None:
                generation = max(generation, lowest)
            self._claim_number(generation, claimant, expected)
            if newest is None:  # Numbers need not start at 1: a higher one may be there by now.
                self.check_owner(generation)
        else:  # Ours already: an earlier call failed half-way.
            generation, claimant = newest, replace(claimant, announced=claim.announced)
            self._own_claims[generation] = claim.to_bytes()
        if generation < lowest:  # All who expect the same have met at one number, and we got it.
            generation = lowest
            self._claim_number(generation, claimant, None)
            self.check_owner(generation)
        self._check_predecessor(newest, found)
        self._settle_the_past(generation)
        return generation

    def last(self) -> Generation | None:
        """Return the highest number ever used, even if its claim is lost; None if there is none."""
        return max(self.seen(), default=None)

    def check_expected(self, expected: Generation | None) -> None:
        """Refuse early what ``claim`` would refuse.

        Raises:
            ConfigurationError: ``expected`` is not the newest generation.
        """
        if expected is not None:
            newest = self.last()
            self._refuse_unexpected(newest, self._readable(newest), expected)

    def check_claimable(
        self, *, wait_ms: WaitMs, take_over: bool = False, expected: Generation | None = None
    ) -> None:
        """Refuse early what ``claim`` would refuse; writes nothing.

        Raises:
            ConfigurationError: a live driver owns the job, or ``expected`` is not the newest
                generation.
        """
        newest = self.last()
        claim = self._readable(newest)
        self._refuse_unexpected(newest, claim, expected)
        self._next(newest, claim, wait_ms, take_over=take_over)

    def succeed(self, generation: Generation, claimant: Claimant) -> Generation:
        """Claim the generation right after ``generation``, which is this driver's own and over.

        Raises:
            FencedError: another driver claimed the job in between; leave it alone.
            StorageUnavailable: as in ``claim``; or this is not the store in which
                ``generation`` was claimed, and the job must not begin anew in it.
        """
        self.check_claim(generation)
        successor = Generation(generation + 1)
        if not self._create_claim(successor, claimant):
            self.check_owner(generation)
        self.check_claim(generation)  # The new one may be in another store than the older ones.
        self._settle_the_past(successor)
        return successor

    def owner_signs(self, generation: Generation, wait_ms: WaitMs) -> OwnerSigns:
        """Return the signs of life of the driver of ``generation``, as a claim would find them."""
        return self._signs(generation, self._readable(generation), wait_ms)

    def check_owner(self, generation: Generation) -> None:
        """Make sure that no newer generation is claimed, and that this is the store of our claim.

        The absence of a newer claim alone proves nothing: an empty directory has none either.

        Raises:
            FencedError: there is a newer one; stop, and write nothing any more.
            StorageUnavailable: the claim of ``generation``, made through this object, is not there
                as it was written; see ``check_claim``.
        """
        newest = self.newest()
        if newest is not None and newest > generation:
            raise FencedError(
                ErrorCode.FENCED,
                f"generation {generation} of job {self._job} was replaced by generation {newest}: "
                "this process stops, the newer one continues",
            )
        self.check_claim(generation)

    def check_claim(self, generation: Generation) -> None:
        """Make sure that this is still the store in which ``generation`` was claimed.

        Of a generation that another process claimed nothing is known here, and nothing is checked.

        Raises:
            StorageUnavailable: STORE_GONE, there is nothing of this job; STORE_REPLACED, something
                else is there: another store, or an older copy. Both may pass.
        """
        own = self._own_claims.get(generation)
        if own is not None and self._objects.get(self._paths.claim(generation)) != own:
            raise self._lost_store(generation)

    def _check_predecessor(self, generation: Generation | None, found: bytes | None) -> None:
        """Make sure that this is still the store in which the claim of ``generation`` was found.

        Raises:
            StorageUnavailable: as in ``check_claim``.
        """
        if generation is None:
            return
        is_gone = found is None and generation not in self.seen()  # Other records may be left.
        if is_gone or self._claim_bytes(generation) != found:
            raise self._lost_store(generation)

    def _claim_bytes(self, generation: Generation | None) -> bytes | None:
        return (
            None if generation is None else bytes_in(self._objects, self._paths.claim(generation))
        )

    def _lost_store(self, generation: Generation) -> StorageUnavailable:
        """Return the error for a store that lost the job, or contains a different one."""
        if self.newest() is None:
            return StorageUnavailable(
                ErrorCode.STORE_GONE,
                f"{self._objects.uri} no longer contains job {self._job}: it was unmounted, "
                "emptied or deleted; put it back, and the job continues",
            )
        return StorageUnavailable(
            ErrorCode.STORE_REPLACED,
            f"{self._objects.uri} does not have the claim of generation {generation} of job "
            f"{self._job}: another store, or an older copy, is in its place; put the right one "
            "back, or start the job again to continue with this one",
        )

    def sha256(self, generation: Generation) -> str | None:
        """Return the digest of the claim as this process reads it; None if it is missing.

        Processes that read equal digests see the same store.
        """
        data = self._objects.get(self._paths.claim(generation))
        return None if data is None else sha256_hex(data)

    def own_sha256(self, generation: Generation) -> str:
        """Return the digest of the claim made through this object, without reading the store."""
        return sha256_hex(self._own_claims[generation])

    def check_shared(self, generation: Generation, claim_sha256: str | None, host: str) -> None:
        """Make sure that this process sees the store in which the driver claimed ``generation``.

        Raises:
            ConfigurationError: it sees another one, or none.
        """
        if self.sha256(generation) != claim_sha256:
            raise not_shared(self._objects.uri, generation, host)

    def claimed(self) -> list[Generation]:
        """Generations with a claim, oldest first."""
        return _numbers(self._objects.children(self._paths.generations))

    def seen(self) -> list[Generation]:
        """Return the generations with any object, even if the claim is lost."""
        names = self._objects.children(self._paths.generations)
        return sorted({Generation(n) for n in map(generation_in, names) if n is not None})

    def _next(
        self,
        newest: Generation | None,
        claim: GenerationClaim | None,
        wait_ms: WaitMs,
        *,
        take_over: bool,
    ) -> Generation:
        """The number to claim, if the owner so far leaves the job to others."""
        predecessor = None
        if newest is not None:
            signs = "silent" if take_over else self._signs(newest, claim, wait_ms)
            predecessor = Predecessor(newest, _describe(newest, claim), signs)
        decision = decide_claim(predecessor, take_over=take_over)
        if isinstance(decision, RefuseClaim):
            raise self._owned(decision.reason)
        return decision.generation

    def _claim_number(
        self, generation: Generation, claimant: Claimant, expected: Generation | None
    ) -> None:
        """Create the claim unless this claimant already has; raise if another claimant has it."""
        if self._create_claim(generation, claimant):
            return
        winner = self._readable(generation)
        if winner is None or winner.owner != claimant.owner:
            self._refuse_unexpected(generation, winner, expected)
            described = _describe(generation, winner)
            raise self._owned(f"{described}, claimed it at the same moment")
        self._own_claims[generation] = winner.to_bytes()

    def _refuse_unexpected(
        self,
        newest: Generation | None,
        claim: GenerationClaim | None,
        expected: Generation | None,
    ) -> None:
        problem = why_unexpected(newest, expected)
        if problem is None:
            if newest is not None and expected is not None:
                self._refuse_unclaimed(newest)
            return
        if newest is not None:
            problem = f"{problem}: {_describe(newest, claim)}"
        raise ConfigurationError(
            ErrorCode.UNEXPECTED_GENERATION,
            f"job {self._job} is not started: {problem}; see `laminar status`, and give the "
            "generation to follow",
        )

    def _refuse_unclaimed(self, expected: Generation) -> None:
        """Refuse to go on after a generation that left records here, and no claim.

        A write that was under way when the store went away leaves such a record in the directory
        that took its place.
        """
        if self._claim_bytes(expected) is None:
            raise ConfigurationError(
                ErrorCode.UNEXPECTED_GENERATION,
                f"job {self._job} is not started: {self._objects.uri} has records of generation "
                f"{expected}, but not its claim {self._paths.claim(expected)}; make sure that this "
                "is the job's store, and start the job without an expected generation if it is",
            )

    def _create_claim(self, generation: Generation, claimant: Claimant) -> bool:
        claim = GenerationClaim(
            job=self._job,
            generation=generation,
            owner=claimant.owner,
            actor=claimant.actor.name,
            actor_kind=claimant.actor.kind,
            reason=claimant.actor.reason,
            code_version=claimant.code_version,
            claimed_at_ms=claimant.claimed_at_ms,
            announced=claimant.announced,
            default_retention=claimant.default_retention,
            spark=claimant.spark,
        )
        data = claim.to_bytes()
        created = create_or_confirm(self._objects, self._paths.claim(generation), data)
        if created:
            self._own_claims[generation] = data
        return created

    def _settle_the_past(self, generation: Generation) -> None:
        """From here on no older generation starts, and nothing more is doomed unseen (step 2)."""
        self._close_open_bases(generation)
        deletions = RetentionLog(self._objects, self._paths)
        deletions.abandon_undecided(f"generation {generation}", "it was claimed")

    def _close_open_bases(self, generation: Generation) -> None:
        """Keep older generations that have not started from starting (step 2, invariant I1)."""
        names = set(self._objects.children(self._paths.generations))
        for older in (n for n in _numbers(names) if n < generation):
            keys = self._paths.base(older), self._paths.base_copy(older)
            first, copy = (key.removeprefix(self._paths.generations) in names for key in keys)
            if not first and not copy:
                closed = GenerationBase(
                    generation=older, base_checkpoint_id=None, closed_by=generation
                )
                create_base(self._objects, self._paths, closed)
            elif not copy:
                complete_copy(self._objects, self._paths, older)

    def _signs(
        self, generation: Generation, claim: GenerationClaim | None, wait_ms: WaitMs
    ) -> OwnerSigns:
        if self._objects.size(self._paths.end(generation)) is not None:
            return "ended"
        if claim is not None and is_visible(claim.owner):
            return "running" if is_running(claim.owner) else "gone"
        return self._watch_heartbeat(generation, wait_ms)

    def _watch_heartbeat(self, generation: Generation, wait_ms: WaitMs) -> OwnerSigns:
        """Watch from afar: clocks of two machines cannot be compared, but change can be seen."""
        before = bytes_in(self._objects, self._paths.heartbeat(generation))
        for _ in range(OBSERVATION_MS // _OBSERVATION_STEP_MS):
            wait_ms(_OBSERVATION_STEP_MS)
            if self._objects.size(self._paths.end(generation)) is not None:
                return "ended"
            if bytes_in(self._objects, self._paths.heartbeat(generation)) != before:
                return "beating"
        return "silent"

    def _readable(self, generation: Generation | None) -> GenerationClaim | None:
        """The claim, or None if there is none or it is damaged: nothing is known of the owner."""
        if generation is None:
            return None
        try:
            return read_record(self._objects, self._paths.claim(generation), GenerationClaim)
        except CorruptCheckpointError:
            return None

    def _owned(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            ErrorCode.JOB_OWNED,
            f"job {self._job} cannot be started: {reason}; stop it first, "
            "or take the job over if that driver must not go on",
        )


def not_shared(uri: str, generation: Generation, host: str) -> ConfigurationError:
    """Return the error that names the host that sees another store than the driver."""
    return ConfigurationError(
        ErrorCode.STORE_NOT_SHARED,
        f"{uri} on host {host} is not the driver's store (the claim of generation {generation} is "
        "not in it): mount the same directory on every host, or use a bucket",
    )


def _describe(generation: Generation, claim: GenerationClaim | None) -> str:
    if claim is None:
        return f"generation {generation} (its claim cannot be read)"
    since = datetime.fromtimestamp(claim.claimed_at_ms / 1000, UTC)
    host = claim.owner.host_id.partition("/")[0]
    return (
        f"generation {generation}, process {claim.owner.pid} of {claim.owner.user} on {host} "
        f"since {since:%Y-%m-%d %H:%M:%S} UTC"
    )


def _numbers(names: Iterable[str]) -> list[Generation]:
    found = (number_in(name) for name in names)
    return sorted(Generation(number) for number in found if number is not None)
