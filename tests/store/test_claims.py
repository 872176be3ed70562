import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from laminar_core.errors import (
    ConfigurationError,
    ErrorCode,
    FencedError,
    StorageUnavailable,
)
from laminar_core.host.clock import ManualClock
from laminar_core.objectstore.local import LocalObjectStore
from laminar_core.objectstore.memory import MemoryObjectStore
from laminar_core.protocol.types import Generation
from laminar_core.records.audit_ref import AuditRef
from laminar_core.records.manifest import Heartbeat
from laminar_core.store.claims import OBSERVATION_MS
from laminar_core.store.owner import this_process
from laminar_core.testing.faulty_store import Effect, Fault, FaultyStore
from tests.store.stores import (
    claim,
    claim_as,
    claimant,
    elsewhere,
    gone,
    never,
    open_job,
)

CLAIM = "generations/0000000001.json"


@pytest.fixture
def store():
    return open_job()


class TestClaim:
    def test_the_first_generation_is_1_and_the_next_2(self, store):
        assert store.claims.newest() is None
        assert claim_as(store, gone(this_process())) == 1
        assert claim_as(store, this_process()) == 2
        assert store.claims.newest() == 2

    def test_the_claim_says_who_and_why(self, store):
        owner = this_process()
        claim_as(store, owner)
        recorded = store.generations.summaries()[0].claim
        assert recorded is not None
        assert (recorded.owner, recorded.actor, recorded.reason) == (owner, "test", "to test")

    def test_a_job_whose_driver_runs_on_this_machine_is_refused_at_once(self, store):
        owner = this_process()
        claim_as(store, owner)
        with pytest.raises(ConfigurationError) as caught:
            claim_as(store, this_process())
        assert caught.value.code is ErrorCode.JOB_OWNED
        message = str(caught.value)
        assert f"process {owner.pid} of {owner.user}" in message
        assert "since 2023-11-14 22:13:20 UTC" in message
        assert "stop it first" in message
        assert "\n" not in message

    def test_a_driver_that_died_on_this_machine_is_succeeded_at_once(self, store):
        claim_as(store, gone(this_process()))
        assert claim_as(store, this_process()) == 2

    def test_a_generation_that_ended_is_succeeded_though_its_process_runs(self, store):
        generation = claim_as(store, this_process())
        store.generations.end(generation, "failed", "a worker died")
        assert claim_as(store, this_process()) == 2

    def test_take_over_does_not_ask(self, store):
        claim_as(store, this_process())
        assert store.claims.claim(claimant(), wait_ms=never, take_over=True) == 2

    def test_of_two_that_race_one_wins_and_the_other_is_told_who(self, tmp_path):
        for round_number in range(10):
            store = open_job(LocalObjectStore(tmp_path / str(round_number)))
            store.objects.create()
            start = threading.Barrier(4)

            def race(number: int, store=store, start=start) -> str:
                start.wait()
                try:
                    return f"{claim_as(store, elsewhere(number), ManualClock().wait_ms)}"
                except (ConfigurationError, FencedError) as error:
                    return str(error)

            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(race, range(1, 5)))
            winners = [result for result in results if result.isdecimal()]
            # One that came after the first had seen its silent heartbeat may succeed it, also
            # before the first has looked whether anybody did.
            overtaken = [
                r for r in results if r.startswith("generation 1 of job payments was replaced")
            ]
            assert winners
            assert sorted([*winners, *("1" for _ in overtaken)]) == [
                str(n + 1) for n in range(len(winners) + len(overtaken))
            ]
            others = {*results} - {*winners} - {*overtaken}
            assert all("process 7 of u on far" in other for other in others)

    def test_of_two_that_take_over_at_the_same_moment_one_wins(self, tmp_path):
        store = open_job(LocalObjectStore(tmp_path))
        claim(store)
        seen_both = threading.Barrier(2)

        class Racing(LocalObjectStore):
            def put_if_absent(self, key, data):
                if key.endswith("0000000002.json"):
                    seen_both.wait()
                return super().put_if_absent(key, data)

        def race(_number: int) -> str:
            racer = open_job(Racing(tmp_path))
            try:
                return str(racer.claims.claim(claimant(), wait_ms=never, take_over=True))
            except ConfigurationError as error:
                return str(error)

        with ThreadPoolExecutor(2) as pool:
            results = sorted(pool.map(race, range(2)))
        assert results[0] == "2"
        assert "claimed it at the same moment" in results[1]


class TestExpected:
    """A driver that says after which generation it goes on."""

    def claim(self, store, expected: int, owner=None, **options) -> Generation:
        return store.claims.claim(
            claimant(owner), wait_ms=never, expected=Generation(expected), **options
        )

    def test_it_goes_on_after_that_one(self, store):
        assert self.claim(store, 0, gone(this_process())) == 1
        assert self.claim(store, 1) == 2

    @pytest.mark.parametrize("expected", [0, 1, 3])
    @pytest.mark.parametrize("take_over", [False, True])
    def test_after_another_one_it_does_not_start(self, store, expected, take_over):
        claim_as(store, gone(this_process()))
        claim_as(store, elsewhere())
        before = store.objects.list("")
        for refused in (
            lambda: self.claim(store, expected, take_over=take_over),
            lambda: store.claims.check_expected(Generation(expected)),
        ):
            with pytest.raises(ConfigurationError) as caught:
                refused()
            assert caught.value.code is ErrorCode.UNEXPECTED_GENERATION
            said = str(caught.value)
            assert "newest generation is 2, not" in said
            assert "process 7 of u on far" in said
            assert "\n" not in said
        assert store.objects.list("") == before

    def test_a_job_that_never_ran(self, store):
        store.claims.check_expected(None)
        store.claims.check_expected(Generation(0))
        with pytest.raises(ConfigurationError, match="never ran, and generation 2 was expected"):
            self.claim(store, 2)

    def test_a_live_owner_is_left_alone_unless_told_otherwise(self, store):
        claim_as(store, this_process())
        with pytest.raises(ConfigurationError) as caught:
            self.claim(store, 1)
        assert caught.value.code is ErrorCode.JOB_OWNED
        assert self.claim(store, 1, take_over=True) == 2

    def test_a_number_whose_claim_is_lost_counts(self, store):
        claim(store)
        store.objects.delete(store.paths.claim(Generation(1)))
        assert store.claims.last() == 1
        with pytest.raises(ConfigurationError, match="newest generation is 1, not none"):
            self.claim(store, 0)
        assert store.claims.claim(claimant(), wait_ms=never, take_over=True) == 2

    @pytest.mark.parametrize("take_over", [False, True])
    @pytest.mark.parametrize("left", ["heartbeat", "base"])
    def test_records_without_a_claim_are_not_the_job(self, store, left, take_over):
        """A write under way when the store went away landed in the directory in its place."""
        store.objects.put(getattr(store.paths, left)(Generation(1)), b"{}")
        before = store.objects.list("")
        for refused in (
            lambda: self.claim(store, 1, take_over=take_over),
            lambda: store.claims.check_expected(Generation(1)),
        ):
            with pytest.raises(ConfigurationError, match="but not its claim") as caught:
                refused()
            assert caught.value.code is ErrorCode.UNEXPECTED_GENERATION
            assert "\n" not in str(caught.value)
        assert store.objects.list("") == before

    def test_a_damaged_claim_is_a_claim(self, store):
        claim(store)
        store.objects.put(store.paths.claim(Generation(1)), b"rot")
        assert self.claim(store, 1, take_over=True) == 2

    @pytest.mark.parametrize("effect", [Effect.FAIL, Effect.LOSE_ANSWER])
    @pytest.mark.parametrize(("number", "above"), [(1, None), (1, 7), (8, 7)])
    def test_a_claim_without_an_answer_is_repeated(self, effect, number, above):
        """Whether it was made or not, the same claimant gets what it expected, once."""
        fault = Fault("put_if_absent", effect, f"{number:010}.json", first=1, last=2)
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        me, announced = claimant(), []

        def announce(generation: Generation) -> AuditRef:
            announced.append(generation)
            return AuditRef(number=len(announced), sha256="0" * 64)

        wanted = {"wait_ms": never, "expected": 0, "above": above, "announce": announce}
        with pytest.raises(StorageUnavailable):
            store.claims.claim(me, **wanted)
        assert store.claims.claim(me, **wanted) == (above or 0) + 1
        newest = store.generations.summaries()[-1].claim
        assert newest is not None
        assert newest.announced is not None
        assert set(announced) == {newest.generation}
        with pytest.raises(ConfigurationError) as caught:
            self.claim(store, 0, above=above)
        assert caught.value.code is ErrorCode.UNEXPECTED_GENERATION


class TestOwnerElsewhere:
    """Clocks cannot be compared and processes not seen; only change can."""

    def test_a_silent_heartbeat_is_watched_for_the_whole_time(self, store):
        generation = claim_as(store, elsewhere())
        store.generations.beat(generation, Heartbeat(sequence=1, at_ms=5))
        clock = ManualClock(0)
        assert claim_as(store, this_process(), clock.wait_ms) == 2
        assert clock.now_ms() == OBSERVATION_MS

    @pytest.mark.parametrize("beats_before", [0, 1])
    def test_a_heartbeat_that_changes_is_life(self, store, beats_before):
        generation = claim_as(store, elsewhere())
        if beats_before:
            store.generations.beat(generation, Heartbeat(sequence=1, at_ms=5))
        waited: list[float] = []

        def wait_ms(duration_ms: float) -> None:
            waited.append(duration_ms)
            if sum(waited) >= 1_000:
                store.generations.beat(generation, Heartbeat(sequence=2, at_ms=5))

        with pytest.raises(ConfigurationError, match="which is alive") as caught:
            claim_as(store, this_process(), wait_ms)
        assert caught.value.code is ErrorCode.JOB_OWNED
        assert sum(waited) == 1_000

    def test_an_end_ends_the_watch(self, store):
        generation = claim_as(store, elsewhere())

        def wait_ms(_duration_ms: float) -> None:
            store.generations.end(generation, "stopped", "asked to")

        assert claim_as(store, this_process(), wait_ms) == 2

    def test_an_unreadable_claim_is_watched_and_named(self, store):
        generation = claim_as(store, this_process())
        store.objects.put(store.paths.claim(generation), b"torn")
        assert claim_as(store, this_process(), ManualClock().wait_ms) == 2
        store.objects.put(store.paths.claim(Generation(2)), b"torn")

        def beating(_duration_ms: float) -> None:
            store.generations.beat(Generation(2), Heartbeat(sequence=2, at_ms=5))

        with pytest.raises(ConfigurationError, match="its claim cannot be read"):
            claim_as(store, this_process(), beating)


class TestLostAnswers:
    @pytest.mark.parametrize("effect", [Effect.LOSE_ANSWER, Effect.DENY])
    def test_a_claim_whose_answer_is_lost_is_ours(self, effect):
        store = open_job(FaultyStore(MemoryObjectStore(), Fault("put_if_absent", effect)))
        assert claim_as(store, this_process()) == 1

    def test_a_claim_that_failed_half_way_is_resumed_by_the_same_claimant(self):
        faults = [
            Fault("put_if_absent", Effect.LOSE_ANSWER, CLAIM, first=1, last=2),
        ]
        store = open_job(FaultyStore(MemoryObjectStore(), *faults))
        owner = this_process()
        with pytest.raises(StorageUnavailable):
            claim_as(store, owner)
        assert claim_as(store, owner) == 1
        assert store.claims.newest() == 1

    def test_a_resumed_claim_still_closes_what_is_open(self):
        fault = Fault("put_if_absent", Effect.FAIL, "0000000001.base", first=1, last=2)
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        claim_as(store, gone(this_process()))
        owner = this_process()
        with pytest.raises(StorageUnavailable):
            claim_as(store, owner)
        assert claim_as(store, owner) == 2
        with pytest.raises(FencedError):
            store.generations.record_base(Generation(1), None)


class TestFencing:
    def test_the_newest_owns_the_job(self, store):
        first = claim(store)
        store.claims.check_owner(first)
        second = claim(store)
        store.claims.check_owner(second)
        with pytest.raises(FencedError, match="job payments was replaced") as caught:
            store.claims.check_owner(first)
        assert caught.value.code is ErrorCode.FENCED


class TestSucceed:
    def test_a_driver_goes_on_after_itself(self, store):
        generation = claim(store)
        assert store.claims.succeed(generation, claimant()) == 2
        assert store.claims.newest() == 2

    def test_but_not_after_somebody_else_took_over(self, store):
        mine = claim(store)
        claim(store)
        with pytest.raises(FencedError):
            store.claims.succeed(mine, claimant())
        assert store.claims.newest() == 2

    def test_repeating_it_after_an_error_is_fine(self):
        fault = Fault("put_if_absent", Effect.LOSE_ANSWER, "0000000002.json", first=1, last=2)
        store = open_job(FaultyStore(MemoryObjectStore(), fault))
        generation, again = claim(store), claimant()
        with pytest.raises(StorageUnavailable):
            store.claims.succeed(generation, again)
        assert store.claims.succeed(generation, again) == 2
