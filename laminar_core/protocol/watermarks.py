"""Combine the event time of several input channels.

The combined watermark is the minimum over the channels that are neither idle nor finished, known
only once each of them has one, and it never goes back. Source: PROTOCOL section 9.
"""

from collections.abc import Iterable

from laminar_core.protocol.types import WATERMARK_END_US, ChannelId


class WatermarkGate:
    """Tracks one watermark a channel; channels are numbered densely from 0."""

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self._watermarks: dict[ChannelId, int | None] = dict.fromkeys(channels)
        self._idle: set[ChannelId] = set()
        self._ended: set[ChannelId] = set()
        self._combined: int | None = None

    @property
    def combined_us(self) -> int | None:
        """Event time of this input in microseconds; None until every channel has a watermark."""
        return self._combined

    def channels(self) -> list[tuple[ChannelId, int | None, bool]]:
        """Return (channel, watermark_us, idle) per channel, for the snapshot."""
        return [(c, w, c in self._idle) for c, w in self._watermarks.items()]

    def restore(
        self, channels: Iterable[tuple[ChannelId, int | None, bool]], combined_us: int | None
    ) -> None:
        """Continue from what ``channels`` and ``combined_us`` were at the cut."""
        for channel, watermark_us, idle in channels:
            self._watermarks[channel] = watermark_us
            if idle:
                self._idle.add(channel)
        self._combined = combined_us

    def advance(self, channel: ChannelId, watermark_us: int) -> int | None:
        """Take a channel's watermark; return the combined one if it rose."""
        self._idle.discard(channel)
        known = self._watermarks[channel]
        self._watermarks[channel] = watermark_us if known is None else max(known, watermark_us)
        return self._risen()

    def mark_active(self, channel: ChannelId) -> None:
        """Count the channel again, from its last watermark on, because a batch arrived."""
        self._idle.discard(channel)

    def mark_idle(self, channel: ChannelId) -> int | None:
        """Leave the channel out until it speaks again; return the combined one if it rose."""
        self._idle.add(channel)
        return self._risen()

    def end(self, channel: ChannelId) -> int | None:
        """Finish the channel, so that it holds nothing back.

        Return the new combined watermark, or None if it did not rise.
        """
        self._ended.add(channel)
        return self.advance(channel, WATERMARK_END_US)

    @property
    def ended(self) -> bool:
        """Return whether every channel is finished."""
        return len(self._ended) == len(self._watermarks)

    @property
    def is_idle(self) -> bool:
        """Return whether every channel that is not finished is idle, and one is not finished."""
        return not self._active()

    def _active(self) -> list[int | None]:
        return [
            w
            for c, w in self._watermarks.items()
            if self.ended or (c not in self._idle and w != WATERMARK_END_US)
        ]

    def _risen(self) -> int | None:
        active = self._active()
        if not active or any(w is None for w in active):
            return None  # Whoever is only idle may still come back with old rows.
        combined = min(w for w in active if w is not None)
        if self._combined is not None and combined <= self._combined:
            return None
        self._combined = combined
        return combined
