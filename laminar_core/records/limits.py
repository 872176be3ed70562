"""Limits for everything that is read from a store: a budget for every input.

A writer of the store can put any bytes there, with a digest that is right. So a reader has a bound
for each length, number and count before it takes memory or time for it. Each bound is far above
what Laminar writes, and old records stay readable; ``docs/formats.md`` has the table.
"""

RECORD_BYTES_MAX = 256 << 20
"""A JSON record. The longest are manifests: a channel has 90 bytes, and between 400 subtasks on
either side there are 160,000 of them."""

RECORD_VALUES_MAX = 10_000_000
"""Values in one record, counted by its commas before parsing: each takes memory of its own."""

FILE_BYTES_MAX = 1 << 40
"""A state or in-flight file. A worker holds one in memory, so this is no limit in practice."""

COUNT_MAX = 2**63 - 1
"""Rows, bytes and sequence numbers: what fits into a column of 64 bits."""

NUMBER_MAX = 9_000_000_000
"""The highest number of a checkpoint, generation or record that is used, or seen in a listing.

Names have ten digits, so that the order of names is the order of numbers. The numbers above stay
free: a stray name there cannot be the newest of anything. One checkpoint a second gets here after
285 years.
"""

NUMBER_IMPORTED_MAX = 8_000_000_000
"""The highest number that a savepoint may bring into another job: it leaves room to go on."""

TEN_DIGITS_MAX = 10**10 - 1
"""The highest number that a record may name: an earlier version could write it."""

PARALLELISM_MAX = 2**15
"""Subtasks of one operator: there are no more key groups."""

TEXT_LENGTH_MAX = 1 << 20
"""Characters of one text. A reason can hold the message of an error, and that a user's row."""

PATH_LENGTH_MAX = 700
"""Characters of a file's name below its job: with the job's, a key."""

ITEMS_MAX = 1_000_000
"""Members of one list or object of a record, and of everything inside a free-form value."""

CHANNELS_MAX = 10_000_000
"""Channels whose event times a manifest lists, in ranges: 3,000 subtasks on either side of one
exchange. They are counted before they are spelled out."""

DEPTH_MAX = 64
"""Nesting levels of a free-form value."""

TIME_MS_MIN = -62_135_596_800_000
TIME_MS_MAX = 253_402_300_799_999
"""A wall clock, in milliseconds since 1970: the years 1 to 9999, which every calendar can show."""

TIME_US_MIN = -(2**63)
TIME_US_MAX = 2**63 - 1
"""Event time in microseconds, as Arrow stores it; the last value stands for the end of all time."""

DURATION_MS_MAX = 1e15
"""30,000 years. A duration may be negative: wall clocks step back."""
