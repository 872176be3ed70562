"""All states of a small world, the moves in each, and their results.

A state is a tuple of numbers: the state of every subtask, the messages under way on every link, the
coordinator's undelivered messages to and from subtasks, its own state, the newest durable
checkpoint, the visible output, and the remaining budgets.

Each of these is a move of its own, so everything may be late by any time, in any combination: a
subtask takes one element, an element arrives, a message of the coordinator or to it is delivered,
the store answers; a checkpoint is triggered, its alignment budget ends, it expires, a part cannot
be written, everything crashes and restarts from the newest checkpoint.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from laminar_core.link.wire import ArrowElement
from laminar_core.protocol.types import NO_CHECKPOINT, CheckpointId
from verification.explorer import coordination, reference
from verification.explorer.coordination import Checkpoint, Coordinator, Moved, Order
from verification.explorer.parts import Committable, Message
from verification.explorer.queues import EMPTY, Numbered, Queues
from verification.explorer.subtask import MARKERS, Outcome, Subtask, key_of
from verification.explorer.tasks import Classes
from verification.explorer.topology import World

State = tuple[int, ...]

NEVER = 0
"""The checkpoint number that stands for "none"."""


class Budget(NamedTuple):
    """Remaining numbers of optional events."""

    checkpoints: int
    crashes: int
    expiries: int
    failures: int


class Move(NamedTuple):
    """One possible event in a state."""

    said: tuple[str, ...]
    state: State
    problem: str | None = None


class System:
    """The world in motion; knows every part's state by number and remembers every step."""

    def __init__(self, world: World, using: Classes) -> None:
        self.world = world
        self.subtasks = [Subtask(world, node, using) for node in world.nodes]
        count, links = len(world.nodes), len(world.links)
        self._links, self._orders, self._inbox = count, count + links, 2 * count + links
        self._coordinator = 3 * count + links
        self._durable, self._visible, self._budget = (self._coordinator + n for n in (1, 2, 3))
        self._elements: Numbered[ArrowElement] = Numbered()
        self._words: Numbered[Order] = Numbered()
        self._messages: Numbered[Message] = Numbered()
        self._queues = Queues()
        self._coordinators: Numbered[Coordinator] = Numbered()
        self._checkpoints: Numbered[Checkpoint | None] = Numbered()
        self._checkpoints.number(None, "none")
        self._ledgers: Numbered[tuple[Committable, ...]] = Numbered()
        self._budgets: Numbered[Budget] = Numbered()
        self._moved: dict[tuple[Any, ...], tuple[int, tuple[Order, ...]]] = {}
        self._verdicts: dict[int, str | None] = {}
        self._marked: dict[int, bool] = {}
        self._possible: dict[int, coordination.Possible] = {}
        self._restarts: dict[tuple[int, ...], Move] = {}
        self._ends: dict[tuple[int, int], str | None] = {}
        self._receivers = [
            (world.index[link.receiver], self._number_in(link.receiver, n))
            for n, link in enumerate(world.links)
        ]
        self._senders = [
            (world.index[link.sender], [n for n, _ in world.outputs_of(link.sender)].index(number))
            for number, link in enumerate(world.links)
        ]

    def _number_in(self, name: str, link: int) -> int:
        return next(channel for channel, n, _ in self.world.inputs_of(name) if n == link)

    def first(self) -> State:
        """Return the initial state."""
        world = self.world
        state = [EMPTY] * (self._budget + 1)
        state[self._visible] = self._ledgers.number(())
        budget = Budget(world.checkpoints, world.crashes, world.expiries, world.failures)
        state[self._budget] = self._budgets.number(budget)
        self._restart(state, NO_CHECKPOINT)
        return tuple(state)

    def _restart(self, state: list[int], highest_id: CheckpointId) -> str | None:
        """A new generation: nothing is left of the old one but what the store holds."""
        for position in range(len(self.subtasks), self._coordinator):
            state[position] = EMPTY
        coordinator = coordination.start(self.world, highest_id)
        state[self._coordinator] = self._coordinators.number(coordinator)
        checkpoint = self._checkpoints[state[self._durable]]
        parts = {} if checkpoint is None else {part.node: part for part in checkpoint.parts}
        started = [s.start(parts.get(s.node.name), highest_id) for s in self.subtasks]
        for number, outcome in enumerate(started):
            state[number] = outcome.local  # Everybody is there before anything is sent.
        return self._follow(state, deque(enumerate(started)))[1]

    def checkpoints(self) -> list[Checkpoint]:
        """Return the distinct checkpoints that completed."""
        known = (self._checkpoints[number] for number in self._verdicts)
        return [checkpoint for checkpoint in known if checkpoint is not None]

    # --- moves ----------------------------------------------------------------------------------

    def is_over(self, state: State) -> bool:
        """Return whether no checkpoint is or can be under way any more.

        Then only data is passed on, through operators that only count. Every order leads to the
        same end, with or without a restart, so one order is enough.
        """
        budget = self._budgets[state[self._budget]]
        if budget.checkpoints or self._coordinators[state[self._coordinator]].machine.pending:
            return False
        if any(state[self._orders + n] or state[self._inbox + n] for n in range(self._links)):
            return False
        if any(state[n] and self._has_markers(state[n]) for n in range(self._links, self._orders)):
            return False
        return all(s.calm(state[n]) for n, s in enumerate(self.subtasks))

    def _has_markers(self, queue: int) -> bool:
        if queue not in self._marked:
            elements = (self._elements[n] for n in self._queues.items(queue))
            self._marked[queue] = any(isinstance(e, MARKERS) for e in elements)
        return self._marked[queue]

    def necessary(self, state: State) -> Iterator[Move]:
        """Yield moves that happen sooner or later, in some order."""
        for number, subtask in enumerate(self.subtasks):
            for channel in subtask.turns:
                outcome = subtask.work(state[number], channel)
                if outcome is not None:
                    yield self._after(state, number, outcome)
        for link, (receiver, channel) in enumerate(self._receivers):
            if state[self._links + link] != EMPTY:
                element, rest = self._queues.pop(state[self._links + link])
                outcome = self.subtasks[receiver].arrive(
                    state[receiver], channel, self._elements[element]
                )
                yield self._after(state, receiver, outcome, self._links + link, rest)
        for number, subtask in enumerate(self.subtasks):
            if state[self._orders + number] != EMPTY:
                word, rest = self._queues.pop(state[self._orders + number])
                order = self._words[word]
                outcome = subtask.deliver(state[number], order.kind, order.content)
                yield self._after(state, number, outcome, self._orders + number, rest)
            if state[self._inbox + number] != EMPTY:
                yield self._heard(state, number)
        if self._coordinators[state[self._coordinator]].publishing is not None:
            yield self._coordinate(state, "the store has the manifest", coordination.published)

    def possible(self, state: State) -> Iterator[Move]:
        """Yield moves that may happen, or not."""
        may = self._may(state[self._coordinator])
        budget = self._budgets[state[self._budget]]
        if budget.checkpoints and may.trigger:
            after = self._spend(state, budget._replace(checkpoints=budget.checkpoints - 1))
            yield self._coordinate(after, "a checkpoint is triggered", coordination.trigger)
        if may.time_out:
            yield self._coordinate(state, "the alignment budget is spent", coordination.time_out)
        if budget.expiries and may.expire:
            after = self._spend(state, budget._replace(expiries=budget.expiries - 1))
            yield self._coordinate(after, "the checkpoint expires", coordination.expire)
        if budget.failures:
            after = self._spend(state, budget._replace(failures=budget.failures - 1))
            for number, subtask in enumerate(self.subtasks):
                for checkpoint_id in subtask.pending(state[number]):
                    outcome = subtask.deliver(state[number], "not written:", checkpoint_id)
                    yield self._after(after, number, outcome)
        if budget.crashes and budget.checkpoints < self.world.checkpoints:
            # Before the first trigger a restart is a start.
            yield self._crash(self._spend(state, budget._replace(crashes=budget.crashes - 1)))

    def _may(self, coordinator: int) -> coordination.Possible:
        if coordinator not in self._possible:
            self._possible[coordinator] = coordination.possible(self._coordinators[coordinator])
        return self._possible[coordinator]

    def _spend(self, state: State, budget: Budget) -> State:
        changed = list(state)
        changed[self._budget] = self._budgets.number(budget)
        return tuple(changed)

    def _after(
        self,
        state: State,
        number: int,
        outcome: Outcome | None,
        queue: int | None = None,
        rest: int = EMPTY,
    ) -> Move:
        """The state after a subtask's step, which took the first of ``queue``."""
        assert outcome is not None
        changed = list(state)
        if queue is not None:
            changed[queue] = rest
        if outcome.sent:
            said, problem = self._follow(changed, deque([(number, outcome)]))
            return Move(said, tuple(changed), problem)
        changed[number] = outcome.local
        return Move((outcome.said,), tuple(changed), outcome.problem)

    def _follow(
        self, state: list[int], steps: "deque[tuple[int, Outcome | None]]"
    ) -> tuple[tuple[str, ...], str | None]:
        """Steps and all that belongs to the same move, first come first: every link is FIFO."""
        said: tuple[str, ...] = ()
        waiting: deque[tuple[int, Message]] = deque()
        while steps or waiting:
            if steps:
                number, outcome = steps.popleft()
            else:
                number, outcome = self._deliver(state, *waiting.popleft())
            if outcome is None:
                continue
            state[number] = outcome.local
            said = (*said, outcome.said) if outcome.said else said
            if outcome.problem is not None:
                return said, outcome.problem
            waiting.extend((number, message) for message in outcome.sent)
        return said, None

    def _deliver(
        self, state: list[int], number: int, message: Message
    ) -> tuple[int, Outcome | None]:
        """Deliver a message within the same move; return the receiver and the outcome."""
        match message.kind:
            case "send" if self.world.latency:
                element = self._elements.number(message.content, key_of(message.content))
                place = self._links + message.link
                state[place] = self._queues.push(state[place], element)
            case "send":
                receiver, channel = self._receivers[message.link]
                return receiver, self.subtasks[receiver].arrive(
                    state[receiver], channel, message.content
                )
            case "credit":
                sender, output = self._senders[message.link]
                return sender, self.subtasks[sender].credit(state[sender], output, message.content)
            case _:
                self._tell(state, number, message)
        return number, None

    def _tell(self, state: list[int], number: int, message: Message) -> None:
        """Send a message to the coordinator; deliver it at once if its time makes no difference."""
        coordinator = self._coordinators[state[self._coordinator]]
        if coordination.hears_at_once(coordinator, message):
            heard, orders = coordination.hear(coordinator, message)
            assert not orders, "nobody notices"
            state[self._coordinator] = self._coordinators.number(heard)
            return
        place = self._inbox + number
        state[place] = self._queues.push(state[place], self._messages.number(message))

    # --- the coordinator ------------------------------------------------------------------------

    def _heard(self, state: State, number: int) -> Move:
        first, rest = self._queues.pop(state[self._inbox + number])
        message = self._messages[first]
        changed = list(state)
        changed[self._inbox + number] = rest
        said = f"the coordinator hears {self.subtasks[number].node.name}: {message.kind}"
        return self._coordinate(
            tuple(changed), said, lambda c: coordination.hear(c, message), message
        )

    def _coordinate(
        self, state: State, said: str, act: Callable[[Coordinator], Moved], about: object = None
    ) -> Move:
        key = (state[self._coordinator], said, about)
        if key not in self._moved:
            coordinator, orders = act(self._coordinators[state[self._coordinator]])
            self._moved[key] = (self._coordinators.number(coordinator), orders)
        after, orders = self._moved[key]
        changed = list(state)
        changed[self._coordinator] = after
        problem = None
        for order in orders:
            problem = problem or self._carry_out(changed, order)
        return Move((said,), tuple(changed), problem)

    def _carry_out(self, state: list[int], order: Order) -> str | None:
        match order.kind:
            case "publish":
                state[self._durable] = self._checkpoints.number(order.content)
                return self._verdict(state[self._durable])
            case "commit":
                done = Order("committed", order.content)
                for number, subtask in enumerate(self.subtasks):
                    if subtask.node.sink:
                        self._say(state, number, done)
                return self._commit(state)
            case _:
                for number in range(len(self.subtasks)):
                    self._say(state, number, order)
                return None

    def _say(self, state: list[int], number: int, order: Order) -> None:
        place = self._orders + number
        state[place] = self._queues.push(state[place], self._words.number(order))

    def _verdict(self, number: int) -> str | None:
        """Is the checkpoint a consistent cut?"""
        if number not in self._verdicts:
            checkpoint = self._checkpoints[number]
            assert checkpoint is not None
            self._verdicts[number] = reference.compare(self.world, checkpoint)
        return self._verdicts[number]

    def _commit(self, state: list[int]) -> str | None:
        """Make the output of the durable checkpoint visible, once."""
        checkpoint = self._checkpoints[state[self._durable]]
        assert checkpoint is not None
        visible = self._ledgers[state[self._visible]]
        new = {c for part in checkpoint.parts for c in part.committables} - set(visible)
        seen = {row for _, rows in visible for row in rows}
        twice = sorted(row for _, rows in new for row in rows if row in seen)
        state[self._visible] = self._ledgers.number(tuple(sorted({*visible, *new})))
        return f"{', '.join(twice)} become visible twice" if twice else None

    def _crash(self, state: State) -> Move:
        """Everything dies; what the newest checkpoint pre-committed is committed again."""
        highest = self._coordinators[state[self._coordinator]].machine.next_id - 1
        key = (highest, *state[self._durable :])
        if key not in self._restarts:
            changed = list(state)
            problem = self._commit(changed) if changed[self._durable] != NEVER else None
            problem = self._restart(changed, CheckpointId(highest)) or problem
            self._restarts[key] = Move(("all crash, and restore",), tuple(changed), problem)
        return self._restarts[key]

    # --- the end --------------------------------------------------------------------------------

    def left_over(self, state: State) -> str | None:
        """Return what is wrong with a state without necessary moves, or None."""
        for number, subtask in enumerate(self.subtasks):
            key = (number, state[number])
            if key not in self._ends:
                self._ends[key] = subtask.left_over(state[number])
            if self._ends[key] is not None:
                return self._ends[key]
        pending = self._coordinators[state[self._coordinator]].machine.pending
        if pending:
            return f"checkpoint {pending[0].checkpoint_id} never completes"
        return self._missing_rows(state) or self._lost_checkpoint(state)

    def _missing_rows(self, state: State) -> str | None:
        """Every row must be visible, or on its way to be, and once."""
        visible = self._ledgers[state[self._visible]]
        for number, subtask in enumerate(self.subtasks):
            if subtask.node.sink:
                rows = [row for _, rows in visible for row in rows]
                rows += subtask.rows(state[number], frozenset(visible))
                due = sorted(subtask.due_rows())
                if sorted(rows) != due:
                    return f"{subtask.node.name} has put out {sorted(rows)} and not {due}"
        return None

    def _lost_checkpoint(self, state: State) -> str | None:
        """Return the problem that an undisturbed checkpoint has not completed, or None."""
        world, budget = self.world, self._budgets[state[self._budget]]
        undisturbed = (world.crashes, world.expiries, world.failures) == budget[1:]
        triggered = world.checkpoints - budget.checkpoints
        if undisturbed and triggered and state[self._durable] == NEVER:
            return "a checkpoint ended without having completed, and nobody knows why"
        return None
