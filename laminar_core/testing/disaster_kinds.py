"""The kinds of disaster: each function schedules one, at a random moment."""

from collections.abc import Callable
from dataclasses import replace

from laminar_core.errors import CorruptCheckpointError
from laminar_core.testing.disasters import Disasters
from laminar_core.testing.disk import SimulatedDisk
from laminar_core.testing.network import SILENCE_SEEN_MS
from laminar_core.testing.observed_store import StoreCall

STALLS_MS = (30.0, 300.0, 3_000.0, 16_000.0, 31_000.0)
"""Durations of stalls; some exceed the silence after which a process counts as dead."""

COMPUTES_MS = (300.0, 3_000.0, 16_000.0, 45_000.0)
"""Durations of slow functions; some exceed the silence allowed for a worker."""

AGAIN = 0.4
"""Probability that a crash is followed by another one."""

BOTH_WAYS = 0.5
"""Probability that a connection is silent in both directions."""

DAY_MS = 86_400_000.0

WORKERS = (1, 2, 3, 4)
"""Numbers of workers after a rescaling."""

# Crashes.


def worker_crash(planned: Disasters) -> None:
    """Kill a worker; often another one soon after, in the middle of the recovery."""
    parallelism, world = planned.simulation.options.parallelism, planned.simulation.world

    def kill() -> None:
        index = planned.dice.randrange(parallelism)
        if planned.hit("worker-crash", f"worker {index}"):
            planned.simulation.kill_worker(index)
            if planned.dice.random() < AGAIN:
                soon = planned.dice.randrange(20, 60 * (1 + parallelism))
                world.at_turn(world.turns + soon, kill)

    planned.at_some_turn(kill)


def driver_crash(planned: Disasters) -> None:
    """Kill the driver."""

    def kill() -> None:
        if planned.hit("driver-crash", "the newest driver"):
            planned.simulation.kill_driver()

    planned.at_some_turn(kill)


def crash_in_store_call(planned: Disasters, calls: int = 150) -> None:
    """Kill the caller of a store call, before or after the call takes effect."""

    def kill(call: StoreCall) -> None:
        planned.hit("crash-in-store-call", f"{call.moment} {call.verb} of {call.key}")
        planned.kill_caller(call)

    planned.at_some_call(calls, lambda _: True, kill)


def torn_write(planned: Disasters) -> None:
    """Kill a writer in the middle of a write; a fragment remains under a temporary name."""

    def kill(call: StoreCall) -> None:
        disk, written = planned.simulation.objects, 0
        if isinstance(disk, SimulatedDisk):
            written = disk.tear(call.key, call.data, planned.dice)
        said = f"{written} of {len(call.data)} bytes of {call.key}"
        planned.hit("torn-write", said)
        planned.kill_caller(call)

    planned.at_some_call(60, _begins_to_write, kill)


# The store and the sinks.


def store_errors(planned: Disasters) -> None:
    """Let some calls of the store fail without effect."""
    planned.fail_calls("store-error", "before")


def lost_answers(planned: Disasters) -> None:
    """Let some calls of the store fail after they have taken effect."""
    planned.fail_calls("lost-answer", "after")


def sink_errors(planned: Disasters) -> None:
    """Let some calls of the sinks' committers fail, before or after they have taken effect."""
    fail = planned.failure("sink-error")

    def observe(verb: str, moment: str) -> None:
        if verb != "stage":
            fail(f"{moment} {verb}")

    for ledger in planned.job.ledgers.values():
        ledger.observe = observe


def slow_store(planned: Disasters) -> None:
    """Slow all background work down for a while."""
    factor, lasts_ms = planned.dice.choice((5.0, 30.0, 100.0)), planned.dice.choice(STALLS_MS[:3])
    world = planned.simulation.world

    def recover() -> None:
        world.store_slowness = 1.0

    def slow_down() -> None:
        if planned.hit("slow-store", f"{factor:g} times for {lasts_ms:g} ms", lasts_ms):
            world.store_slowness = factor
            world.later(lasts_ms, recover)

    planned.at_some_turn(slow_down)


def corruption(planned: Disasters) -> None:
    """Damage a file of the newest completed checkpoint; often followed by a crash."""
    crash = planned.dice.random() < 0.7  # noqa: PLR2004 - mostly
    planned.at_some_turn(lambda: _damage(planned, crash=crash))


def _damage(planned: Disasters, *, crash: bool) -> None:
    disk, store = planned.simulation.objects, planned.simulation.store
    completed = store.manifests.ids()
    if planned.result is not None or not completed or not isinstance(disk, SimulatedDisk):
        return
    try:
        manifest = store.manifests.read(completed[-1])
    except CorruptCheckpointError:
        return  # Damaged already.
    keys = [store.paths.manifest(completed[-1])]
    keys += [store.paths.absolute(file.path) for file in manifest.files() if file.size_bytes]
    key = planned.dice.choice(keys)
    if disk.size(key):
        planned.damaged_keys.add(key)
        how = disk.damage(key, planned.dice)
        planned.hit("corruption", f"{how} {key}")
        if crash:
            planned.simulation.kill_worker(0)


# Time.


def stall(planned: Disasters) -> None:
    """Suspend a process for a while, like a long garbage collection."""
    lasts_ms = planned.dice.choice(STALLS_MS)
    whom = planned.dice.choice(("driver", "machine", "worker", "worker"))
    index = planned.dice.randrange(planned.simulation.options.parallelism)
    planned.at_some_turn(lambda: _stall(planned, whom, index, lasts_ms))


def _stall(planned: Disasters, whom: str, index: int, lasts_ms: float) -> None:
    if not planned.simulation.drivers or not planned.hit(
        "stall", f"{whom} (worker {index}) for {lasts_ms:g} ms", lasts_ms
    ):
        return
    driver = planned.simulation.drivers[-1]
    hold: Callable[..., None]
    if whom == "driver":
        hold = driver.hold_itself
    elif whom == "machine":
        hold = driver.hold
    elif driver.stages and index < len(driver.stages[-1].workers):
        hold = driver.stages[-1].workers[index].hold
    else:
        return
    hold()
    planned.simulation.world.later(lasts_ms, lambda: hold(held=False))


def slow_function(planned: Disasters) -> None:
    """Let a user's function take long for one batch, while its process sends heartbeats."""
    lasts_ms = planned.dice.choice(COMPUTES_MS)
    index = planned.dice.randrange(planned.simulation.options.parallelism)

    def compute() -> None:
        stages = planned.simulation.drivers[-1].stages if planned.simulation.drivers else []
        if not stages or index >= len(stages[-1].workers):
            return
        worker = stages[-1].workers[index]
        takes_ms = lasts_ms * worker.pace  # A slow worker needs so many times longer.
        if planned.hit("slow-function", f"of worker {index} for {takes_ms:g} ms", takes_ms):
            worker.when_computing(lambda: begin(takes_ms))

    def begin(takes_ms: float) -> float:
        planned.last_hit_ms = max(planned.last_hit_ms, planned.world_ms + takes_ms)
        return lasts_ms

    planned.at_some_turn(compute)


def slow_link(planned: Disasters) -> None:
    """Delay all messages from and to one worker, for the whole run."""
    index = planned.dice.randrange(planned.simulation.options.parallelism)
    extra_ms = planned.dice.choice((3.0, 20.0, 100.0))
    planned.hit("slow-link", f"worker {index}, {extra_ms:g} ms")
    planned.delay(f"/worker-{index}", extra_ms, float("inf"))


def delay_spike(planned: Disasters) -> None:
    """Delay the messages of one worker, or of all, for a while."""
    index = planned.dice.choice(("", "0", str(planned.simulation.options.parallelism - 1)))
    extra_ms, lasts_ms = (
        planned.dice.choice((100.0, 1_000.0, 5_000.0)),
        planned.dice.choice((50, 500)),
    )

    def spike() -> None:
        what = f"worker {index or 'all'}, {extra_ms:g} ms"
        if planned.hit("delay-spike", what, lasts_ms + extra_ms):
            planned.delay(f"/worker-{index}", extra_ms, planned.world_ms + lasts_ms)

    planned.at_some_turn(spike)


def reordering(planned: Disasters) -> None:
    """Let data frames overtake each other in the network."""
    frames = planned.dice.choice((1, 3, 8))
    planned.hit("reordering", f"by up to {frames} frames")
    planned.simulation.network.reorder_max = frames


def lossy_link(planned: Disasters) -> None:
    """Lose or repeat messages between coordinator and workers."""
    network = planned.simulation.network
    network.control_loss = planned.dice.choice((0.0, 0.1, 0.3))
    network.control_repeat = planned.dice.choice((0.1, 0.3))
    shares = f"{network.control_loss:g} lost, {network.control_repeat:g} repeated"
    planned.hit("lossy-link", shares)


def broken_link(planned: Disasters) -> None:
    """Break a connection between two workers with frames under way, often more than once."""
    parallelism, world = planned.simulation.options.parallelism, planned.simulation.world

    def break_one() -> None:
        pair = planned.dice.sample(range(parallelism), 2)
        lost = planned.simulation.break_link(*pair)
        if lost is not None:
            planned.hit("broken-link", f"worker {pair[0]} to {pair[1]}, {lost} frames lost")
        if planned.dice.random() < AGAIN:
            world.at_turn(world.turns + planned.dice.randrange(1, 200), break_one)

    if parallelism > 1:
        planned.at_some_turn(break_one)


def silent_link(planned: Disasters) -> None:
    """Let a connection between two workers fall silent, in one direction or in both."""
    parallelism = planned.simulation.options.parallelism
    lasts_ms = planned.dice.choice((1_000.0, 9_000.0, 25_000.0, 45_000.0))
    both = planned.dice.random() < BOTH_WAYS

    def silence() -> None:
        one, other = planned.dice.sample(range(parallelism), 2)
        ways = [(one, other), (other, one)] if both else [(one, other)]
        what = ", ".join(f"worker {sender} to {receiver}" for sender, receiver in ways)
        if planned.hit("silent-link", f"{what}, {lasts_ms:g} ms", lasts_ms + SILENCE_SEEN_MS):
            planned.silent_ms = max(planned.silent_ms, lasts_ms)
            for way in ways:
                planned.simulation.silence_link(*way, lasts_ms)

    if parallelism > 1:
        planned.at_some_turn(silence)


def clock_skew(planned: Disasters) -> None:
    """Let wall clocks disagree, and monotonic clocks run at different rates."""
    hosts = [f"host-{n}" for n in range(planned.simulation.options.parallelism)]
    for host in [*hosts, "driver-1", "driver-2", "driver-3"]:
        clock = planned.simulation.world.clock_of(host)
        clock.step_wall(planned.dice.choice((-DAY_MS, -999.0, 0.0, 999.0, DAY_MS)))
        clock.run_at(planned.dice.choice((0.9, 0.99, 1.0, 1.01, 1.1)))
    planned.hit("clock-skew", "on all hosts")


def clock_step(planned: Disasters) -> None:
    """Step the wall clocks."""
    hosts = ["host-0", "driver-1", "driver-2"]
    by_ms = planned.dice.choice((-DAY_MS, -5_000.0, 5_000.0, DAY_MS))

    def step() -> None:
        if planned.hit("clock-step", f"by {by_ms:g} ms"):
            for host in hosts:
                planned.simulation.world.clock_of(host).step_wall(by_ms)

    planned.at_some_turn(step)


# Zombies.


def zombie(planned: Disasters) -> None:
    """Suspend a driver and its workers while another one runs the job, then resume them."""
    planned.at_some_turn(lambda: _take_over(planned, "zombie"))


def zombie_in_store_call(planned: Disasters, calls: int = 120) -> None:
    """Suspend a driver in the middle of a store call while another one runs the job."""
    planned.at_some_call(
        calls, lambda _: True, lambda _: _take_over(planned, "zombie-in-store-call")
    )


def _take_over(planned: Disasters, kind: str) -> None:
    if not planned.simulation.drivers or not planned.hit(kind, "the newest driver"):
        return
    sleeping = planned.simulation.drivers[-1]
    sleeping.hold()
    if planned.dice.random() < 0.6:  # noqa: PLR2004 - more often than not
        wakes = planned.simulation.world.turns + planned.dice.randrange(100, 600)
        planned.simulation.world.at_turn(wakes, lambda: sleeping.hold(held=False))
    stretch = planned.simulation.world.stretch
    planned.run_one()
    planned.simulation.world.stretch = stretch  # The call goes on in which the driver fell asleep.
    sleeping.hold(held=False)


# People.


def stop(planned: Disasters) -> None:
    """Stop the job with a last checkpoint, and start it again."""

    def stop() -> None:
        if planned.hit("stop", "the newest driver"):
            planned.simulation.stop()

    planned.at_some_turn(stop)


def cancel(planned: Disasters) -> None:
    """End the job at once, and start it again."""

    def cancel() -> None:
        if planned.hit("cancel", "the newest driver"):
            planned.simulation.cancel()

    planned.at_some_turn(cancel)


def go_back(planned: Disasters) -> None:
    """Kill the driver, and let the next one restore an older checkpoint on request."""

    def kill() -> None:
        store = planned.simulation.store
        usable = [
            summary.checkpoint_id
            for summary in store.list_summaries()
            if summary.outcome == "completed" and not summary.orphan and not summary.deleted
        ]
        if usable and planned.hit("go-back", f"one of {usable}"):
            planned.next_run = {"restore_id": planned.dice.choice(usable), "take_over": True}
            planned.simulation.kill_driver()

    planned.at_some_turn(kill)


def rescale(planned: Disasters) -> None:
    """End the job in some way, and continue with another number of workers."""
    if not planned.job.rescales:
        return
    end = planned.dice.choice(("stop", "cancel", "kill_driver"))

    def end_and_change() -> None:
        before = planned.simulation.options.parallelism
        after = planned.dice.choice([n for n in WORKERS if n != before])
        if planned.hit("rescale", f"{end}, from {before} to {after} workers"):
            planned.simulation.options = replace(planned.simulation.options, parallelism=after)
            getattr(planned.simulation, end)()

    planned.at_some_turn(end_and_change)


def _begins_to_write(call: StoreCall) -> bool:
    return call.moment == "before" and call.verb in ("put", "put_if_absent")


KINDS: dict[str, Callable[[Disasters], None]] = {
    "worker-crash": worker_crash,
    "driver-crash": driver_crash,
    "crash-in-store-call": crash_in_store_call,
    "torn-write": torn_write,
    "store-error": store_errors,
    "lost-answer": lost_answers,
    "sink-error": sink_errors,
    "slow-store": slow_store,
    "corruption": corruption,
    "stall": stall,
    "slow-function": slow_function,
    "slow-link": slow_link,
    "delay-spike": delay_spike,
    "reordering": reordering,
    "lossy-link": lossy_link,
    "clock-skew": clock_skew,
    "clock-step": clock_step,
    "stop": stop,
    "cancel": cancel,
    "go-back": go_back,
    "zombie": zombie,
    "zombie-in-store-call": zombie_in_store_call,
    "rescale": rescale,
    "broken-link": broken_link,
    "silent-link": silent_link,
}
"""Append new kinds at the end: ``tests/testing/test_campaign.py`` replays old seeds by position."""
