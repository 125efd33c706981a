"""How a server is asked politely: not too often, again when it fails, and not before it says.

Pauses come from a counter, so that a run replays; the clock is a value, so that a test need not wait.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ..smc.stream import OUTPUT, Stream
from ..types import InvalidInput

BUSY = (408, 429, 500, 502, 503, 504)  # answers after which it is worth trying again


@dataclass(frozen=True)
class Manners:
    """How the server is asked: queries a second, seconds to wait for an answer, tries after the first, longest pause.

    Pauses double from `pause` and are shortened by up to a half, by a stream of `seed`, so that clients part.
    """

    rate: float = 1.0
    timeout: float = 10.0
    retries: int = 6
    pause: float = 1.0
    longest: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "timeout", "pause", "longest"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be positive and finite")
        if self.retries < 0:
            raise InvalidInput(f"retries is {self.retries}; give 0 to try once")

    def wait(self, tried: int, asked: float) -> float:
        """Seconds before the next try: our own pause, or as long as the server asks where that is more."""
        u = float(Stream(self.seed).uniforms(tried, OUTPUT, 1, (0, 1)))
        return max(asked, min(self.longest, self.pause * 2.0**tried) * (1 - u / 2))


@dataclass
class Gate:
    """Lets one query through at a time, `rate` of them a second; `sleep` and `now` are a clock."""

    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    opens: float = -math.inf

    def pass_through(self, rate: float) -> None:
        if self.opens > self.now():
            self.sleep(self.opens - self.now())
        self.opens = self.now() + 1 / rate


def retry_after(value: str | None) -> float:
    """Seconds that a Retry-After header asks for, given as such or as a date; 0 where there is none."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
