"""The explored worlds. The quick ones belong to the test suite, all of them to a command.

In a *quick* world elements that leave an output queue arrive at once, and sources stay silent at
their end, unless the world is about that; the others lift these limits one by one.
"""

from verification.explorer.topology import Link, Node, World

FAN_IN = World(
    "fan-in",
    "two sources of two records each, joined in front of a sink",
    (Node("a", 2), Node("b", 2), Node("j", sink=True)),
    (Link("a", "j"), Link("b", "j")),
    crashes=1,
    expiries=1,
    ends=False,
    latency=False,
)

TWO_INPUTS = FAN_IN.variant(
    "two-inputs",
    "the sources feed two inputs of one operator, with event time; a record less, and no expiry",
    nodes=(
        Node("a", 2, timed=True),
        Node("b", 1, timed=True),
        Node("j", sink=True, input_names=("a", "b")),
    ),
    links=(Link("a", "j"), Link("b", "j", feeds=1)),
    expiries=0,
)

PAIR = World(
    "pair",
    "a source of three records and a sink, far apart, up to the end; a part may fail",
    (Node("a", 3), Node("k", sink=True)),
    (Link("a", "k"),),
    crashes=1,
    expiries=1,
    failures=1,
)

RELAY = World(
    "relay",
    "a source of three records, an operator in between, a sink",
    (Node("a", 3), Node("m"), Node("k", sink=True)),
    (Link("a", "m"), Link("m", "k")),
    crashes=1,
    expiries=1,
    ends=False,
    latency=False,
)

DIAMOND = World(
    "diamond",
    "a source of two records, two ways, and a sink where they meet again",
    (Node("a", 2), Node("m"), Node("n"), Node("k", sink=True)),
    (Link("a", "m"), Link("a", "n"), Link("m", "k"), Link("n", "k")),
    crashes=1,
    ends=False,
    latency=False,
)

LOOP = World(
    "loop",
    "a source of two records, and a loop of head, body and tail; each record goes round once more",
    (Node("a", 2), Node("h", keeps_path=True), Node("m", keeps_path=True), Node("t")),
    (
        Link("a", "h"),
        Link("h", "m", may_overtake=False),
        Link("m", "t", may_overtake=False),
        Link("t", "h", may_overtake=False, feedback=True, accepts=lambda path: path == "at"),
    ),
    crashes=1,
    expiries=1,
    ends=False,
    latency=False,
)

_ONE_IN_LOOP = (Node("a", 1), *LOOP.nodes[1:])

_FEWER = (Node("a", 2), Node("b", 1), Node("j", sink=True))

QUICK = (
    FAN_IN,
    FAN_IN.variant(
        "fan-in-few",
        "a record less, and no checkpoint expires",
        nodes=_FEWER,
        expiries=0,
    ),
    FAN_IN.variant(
        "fan-in-unaligned", "unaligned from the start", nodes=_FEWER, alignment_timeout_ms=0
    ),
    FAN_IN.variant("fan-in-aligned", "never unaligned", alignment_timeout_ms=None),
    FAN_IN.variant(
        "fan-in-ordered",
        "nothing overtakes on one of the channels",
        nodes=_FEWER,
        links=(Link("a", "j"), Link("b", "j", may_overtake=False)),
        expiries=0,
    ),
    TWO_INPUTS,
    PAIR,
    PAIR.variant(
        "pair-replayed",
        "two records; a checkpoint is triggered while another is replayed",
        nodes=(Node("a", 2), Node("k", sink=True)),
        checkpoints=2,
        expiries=0,
        failures=0,
        ends=False,
        latency=False,
    ),
    PAIR.variant(
        "pair-aborted",
        "two records; a checkpoint expires or fails before another one completes",
        nodes=(Node("a", 2), Node("k", sink=True)),
        checkpoints=2,
        crashes=0,
        ends=False,
        latency=False,
    ),
    LOOP.variant("loop-aligned", "never unaligned", alignment_timeout_ms=None),
    LOOP.variant(
        "loop-aborted",
        "one record; a checkpoint expires while the next is triggered",
        nodes=_ONE_IN_LOOP,
        alignment_timeout_ms=None,
        crashes=0,
        checkpoints=2,
    ),
    LOOP.variant(
        "loop-replayed",
        "one record; a checkpoint is triggered while another is replayed",
        nodes=_ONE_IN_LOOP,
        alignment_timeout_ms=None,
        expiries=0,
        checkpoints=2,
    ),
)

LARGE = (
    FAN_IN.variant("fan-in-ends", "up to the end of the input", ends=True),
    FAN_IN.variant("fan-in-latency", "every element arrives when it likes", latency=True),
    FAN_IN.variant(
        "fan-in-twice",
        "a record less, two checkpoints, the second maybe in a replay",
        nodes=_FEWER,
        checkpoints=2,
        expiries=0,
    ),
    PAIR.variant("pair-twice", "two checkpoints, the second maybe in a replay", checkpoints=2),
    RELAY,
    DIAMOND,
    LOOP,
    LOOP.variant(
        "loop-twice",
        "one record, two checkpoints, the second maybe in a replay",
        nodes=_ONE_IN_LOOP,
        checkpoints=2,
        expiries=0,
    ),
)

WORLDS = {world.name: world for world in (*QUICK, *LARGE)}
