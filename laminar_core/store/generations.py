"""Claims, bases, heartbeats and ends of generations: who owns a job. See ``protocol.recovery``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from laminar_core.codec.arrow import sha256_hex
from laminar_core.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    ErrorCode,
    FencedError,
    ProtocolError,
    StorageUnavailable,
)
from laminar_core.objectstore.opening import ObjectStore
from laminar_core.protocol.recovery import (
    Base,
    OwnerSigns,
    Predecessor,
    RefuseClaim,
    decide_claim,
    why_unexpected,
)
from laminar_core.protocol.types import CheckpointId, Generation
from laminar_core.records.actor import Actor
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import (
    GenerationBase,
    GenerationClaim,
    GenerationEnd,
    Heartbeat,
    Owner,
)
from laminar_core.records.paths import JobPaths, generation_in, number_in
from laminar_core.records.record import JsonObject
from laminar_core.records.savepoint_use import SavepointUse
from laminar_core.store.bases import complete_copy, create_base, read_base
from laminar_core.store.generation_summary import GenerationSummary, read_generation
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
    default_retention: JsonObject | None = None
    """The retention policy for completed checkpoints if the start named none."""


class GenerationLog:
    """The generations of one job. Safe to use from several threads."""

    def __init__(self, objects: ObjectStore, job: str) -> None:
        self.objects = objects
        self.paths = JobPaths(job)
        self.job = job
        self._own_claims: dict[Generation, bytes] = {}
        """The bytes of each claim that was made through this object."""

    def newest_generation(self) -> Generation | None:
        """Return the generation that owns the job; None if it never ran."""
        return max(self._claimed(), default=None)

    def claim_generation(
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
        newest, lowest = self.last_generation(), Generation((above or 0) + 1)
        found = self._claim_bytes(newest)
        claim = self._readable_claim(newest)
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

    def last_generation(self) -> Generation | None:
        """Return the highest number ever used, even if its claim is lost; None if there is none."""
        return max(self._seen(), default=None)

    def check_expected(self, expected: Generation | None) -> None:
        """Refuse early what ``claim_generation`` would refuse.

        Raises:
            ConfigurationError: ``expected`` is not the newest generation.
        """
        if expected is not None:
            newest = self.last_generation()
            self._refuse_unexpected(newest, self._readable_claim(newest), expected)

    def check_claimable(
        self, *, wait_ms: WaitMs, take_over: bool = False, expected: Generation | None = None
    ) -> None:
        """Refuse early what ``claim_generation`` would refuse; writes nothing.

        Raises:
            ConfigurationError: a live driver owns the job, or ``expected`` is not the newest
                generation.
        """
        newest = self.last_generation()
        claim = self._readable_claim(newest)
        self._refuse_unexpected(newest, claim, expected)
        self._next(newest, claim, wait_ms, take_over=take_over)

    def succeed_generation(self, generation: Generation, claimant: Claimant) -> Generation:
        """Claim the generation right after ``generation``, which is this driver's own and over.

        Raises:
            FencedError: another driver claimed the job in between; leave it alone.
            StorageUnavailable: as in ``claim_generation``; or this is not the store in which
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
        return self._signs(generation, self._readable_claim(generation), wait_ms)

    def has_ended(self, generation: Generation) -> GenerationEnd | None:
        """Return how ``generation`` ended; None if it runs, or its driver was killed."""
        return read_record(self.objects, self.paths.end(generation), GenerationEnd)

    def check_owner(self, generation: Generation) -> None:
        """Make sure that no newer generation is claimed, and that this is the store of our claim.

        The absence of a newer claim alone proves nothing: an empty directory has none either.

        Raises:
            FencedError: there is a newer one; stop, and write nothing any more.
            StorageUnavailable: the claim of ``generation``, made through this object, is not there
                as it was written; see ``check_claim``.
        """
        newest = self.newest_generation()
        if newest is not None and newest > generation:
            raise FencedError(
                ErrorCode.FENCED,
                f"generation {generation} of job {self.job} gave way to generation {newest}: "
                "this process stops, the newer one goes on",
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
        if own is not None and self.objects.get(self.paths.claim(generation)) != own:
            raise self._lost_store(generation)

    def _check_predecessor(self, generation: Generation | None, found: bytes | None) -> None:
        """Make sure that this is still the store in which the claim of ``generation`` was found.

        Raises:
            StorageUnavailable: as in ``check_claim``.
        """
        if generation is None:
            return
        is_gone = found is None and generation not in self._seen()  # Other records may be left.
        if is_gone or self._claim_bytes(generation) != found:
            raise self._lost_store(generation)

    def _claim_bytes(self, generation: Generation | None) -> bytes | None:
        return None if generation is None else bytes_in(self.objects, self.paths.claim(generation))

    def _lost_store(self, generation: Generation) -> StorageUnavailable:
        """Return the error for a store that lost the job, or contains a different one."""
        if self.newest_generation() is None:
            return StorageUnavailable(
                ErrorCode.STORE_GONE,
                f"{self.objects.uri} has nothing of job {self.job} any more: it was unmounted, "
                "emptied or deleted; put it back, the job goes on with it",
            )
        return StorageUnavailable(
            ErrorCode.STORE_REPLACED,
            f"{self.objects.uri} does not have the claim of generation {generation} of job "
            f"{self.job}: another store, or an older copy, is in its place; put the right one "
            "back, or start the job again to go on with this one",
        )

    def claim_sha256(self, generation: Generation) -> str | None:
        """Return the digest of the claim as this process reads it; None if it is missing.

        Processes that read equal digests see the same store.
        """
        data = self.objects.get(self.paths.claim(generation))
        return None if data is None else sha256_hex(data)

    def own_claim_sha256(self, generation: Generation) -> str:
        """Return the digest of the claim made through this object, without reading the store."""
        return sha256_hex(self._own_claims[generation])

    def check_shared(self, generation: Generation, claim_sha256: str | None, host: str) -> None:
        """Make sure that this process sees the store in which the driver claimed ``generation``.

        Raises:
            ConfigurationError: it sees another one, or none.
        """
        if self.claim_sha256(generation) != claim_sha256:
            raise not_shared(self.objects.uri, generation, host)

    def record_base(
        self,
        generation: Generation,
        checkpoint_id: CheckpointId | None,
        savepoint: SavepointUse | None = None,
        *,
        audited: AuditRef | None = None,
    ) -> None:
        """Write down what ``generation`` starts from, before it starts; None is a fresh start.

        ``savepoint``: the checkpoint is the copy of one. ``audited`` is the record of the audit log
        that announced the start.

        Raises:
            FencedError: a newer generation was faster and closed this one.
            StorageUnavailable: the store did not answer, or the base is not in the store in which
                ``generation`` was claimed: a generation must not run without its base.
        """
        record = GenerationBase(
            generation=generation,
            base_checkpoint_id=checkpoint_id,
            savepoint=savepoint,
            audited=audited,
        )
        if not create_base(self.objects, self.paths, record):
            self.check_owner(generation)
            raise ProtocolError(
                ErrorCode.ILLEGAL_EVENT, f"generation {generation} started from another checkpoint"
            )
        self.check_claim(generation)
        if self.objects.size(self.paths.base(generation)) is None:
            raise StorageUnavailable(
                ErrorCode.STORE_REPLACED,
                f"{self.objects.uri} does not have the base of generation {generation} of job "
                f"{self.job}, which was just written: another store was in its place meanwhile",
            )

    def beat(self, generation: Generation, heartbeat: Heartbeat) -> None:
        """Show that the owner lives: ``sequence`` differs from call to call."""
        self.objects.put(self.paths.heartbeat(generation), heartbeat.to_bytes())

    def end_generation(
        self,
        generation: Generation,
        outcome: str,
        reason: str,
        *,
        audited: AuditRef | None = None,
    ) -> None:
        """Write down that ``generation`` stopped by itself; the job can be claimed at once.

        ``audited`` is the record of the audit log that announced the end.
        """
        record = GenerationEnd(
            generation=generation, outcome=outcome, reason=reason, audited=audited
        )
        create_or_confirm(self.objects, self.paths.end(generation), record.to_bytes())

    def bases(self) -> tuple[Base, ...]:
        """Return the bases of all generations, oldest first, without closed ones.

        Raises:
            CorruptCheckpointError: neither a base nor its copy can be read, so no timeline can be
                known.
        """
        records = map(self._base_of_a_claim, self._seen())
        return tuple(base_of(r) for r in records if r is not None and r.closed_by is None)

    def read_base(self, generation: Generation) -> GenerationBase | None:
        """Return the base of ``generation``; None if it has not started.

        Raises:
            CorruptCheckpointError: neither it nor its copy can be read.
        """
        return read_base(self.objects, self.paths, generation)

    def _base_of_a_claim(self, generation: Generation) -> GenerationBase | None:
        """Return the base; None also for an unreadable one of a generation without a claim."""
        try:
            return self.read_base(generation)
        except CorruptCheckpointError:
            if self.objects.size(self.paths.claim(generation)) is None:
                return None
            raise

    def read_heartbeat(self, generation: Generation) -> Heartbeat | None:
        """Return the newest heartbeat of ``generation``; None if it is missing or damaged."""
        try:
            return read_record(self.objects, self.paths.heartbeat(generation), Heartbeat)
        except CorruptCheckpointError:
            return None

    def generations(self) -> list[GenerationSummary]:
        """Return a summary of every generation, oldest first."""
        return [read_generation(self.objects, self.paths, g) for g in self._claimed()]

    def _claimed(self) -> list[Generation]:
        return _numbers(self.objects.children(self.paths.generations))

    def _seen(self) -> list[Generation]:
        """Return the generations with any object, even if the claim is lost."""
        names = self.objects.children(self.paths.generations)
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
        winner = self._readable_claim(generation)
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
            f"job {self.job} is not started: {problem}; look at `laminar status`, and say which "
            "generation to go on after",
        )

    def _refuse_unclaimed(self, expected: Generation) -> None:
        """Refuse to go on after a generation that left records here, and no claim.

        A write that was under way when the store went away leaves such a record in the directory
        that took its place.
        """
        if self._claim_bytes(expected) is None:
            raise ConfigurationError(
                ErrorCode.UNEXPECTED_GENERATION,
                f"job {self.job} is not started: {self.objects.uri} has records of generation "
                f"{expected}, but not its claim {self.paths.claim(expected)}; make sure that this "
                "is the job's store, and start the job without an expected generation if it is",
            )

    def _create_claim(self, generation: Generation, claimant: Claimant) -> bool:
        claim = GenerationClaim(
            job=self.job,
            generation=generation,
            owner=claimant.owner,
            actor=claimant.actor.name,
            actor_kind=claimant.actor.kind,
            reason=claimant.actor.reason,
            code_version=claimant.code_version,
            claimed_at_ms=claimant.claimed_at_ms,
            announced=claimant.announced,
            default_retention=claimant.default_retention,
        )
        data = claim.to_bytes()
        created = create_or_confirm(self.objects, self.paths.claim(generation), data)
        if created:
            self._own_claims[generation] = data
        return created

    def _settle_the_past(self, generation: Generation) -> None:
        """From here on no older generation starts, and nothing more is doomed unseen (step 2)."""
        self._close_open_bases(generation)
        deletions = RetentionLog(self.objects, self.paths)
        deletions.abandon_undecided(f"generation {generation}", "it was claimed")

    def _close_open_bases(self, generation: Generation) -> None:
        """Keep older generations that have not started from starting (step 2, invariant I1)."""
        names = set(self.objects.children(self.paths.generations))
        for older in (n for n in _numbers(names) if n < generation):
            keys = self.paths.base(older), self.paths.base_copy(older)
            first, copy = (key.removeprefix(self.paths.generations) in names for key in keys)
            if not first and not copy:
                closed = GenerationBase(
                    generation=older, base_checkpoint_id=None, closed_by=generation
                )
                create_base(self.objects, self.paths, closed)
            elif not copy:
                complete_copy(self.objects, self.paths, older)

    def _signs(
        self, generation: Generation, claim: GenerationClaim | None, wait_ms: WaitMs
    ) -> OwnerSigns:
        if self.objects.size(self.paths.end(generation)) is not None:
            return "ended"
        if claim is not None and is_visible(claim.owner):
            return "running" if is_running(claim.owner) else "gone"
        return self._watch_heartbeat(generation, wait_ms)

    def _watch_heartbeat(self, generation: Generation, wait_ms: WaitMs) -> OwnerSigns:
        """Watch from afar: clocks of two machines cannot be compared, but change can be seen."""
        before = bytes_in(self.objects, self.paths.heartbeat(generation))
        for _ in range(OBSERVATION_MS // _OBSERVATION_STEP_MS):
            wait_ms(_OBSERVATION_STEP_MS)
            if self.objects.size(self.paths.end(generation)) is not None:
                return "ended"
            if bytes_in(self.objects, self.paths.heartbeat(generation)) != before:
                return "beating"
        return "silent"

    def _readable_claim(self, generation: Generation | None) -> GenerationClaim | None:
        """The claim, or None if there is none or it is damaged: nothing is known of the owner."""
        if generation is None:
            return None
        try:
            return read_record(self.objects, self.paths.claim(generation), GenerationClaim)
        except CorruptCheckpointError:
            return None

    def _owned(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            ErrorCode.JOB_OWNED,
            f"job {self.job} cannot be started: {reason}; stop it first, "
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


def base_of(record: GenerationBase) -> Base:
    """Return the base as the fact that decisions need; the record must not be closed."""
    base_id, used = record.base_checkpoint_id, record.savepoint
    return Base(
        Generation(record.generation),
        None if base_id is None else CheckpointId(base_id),
        None if used is None else CheckpointId(used.timeline_floor),
    )
