"""Explores every interleaving of the real machines in small worlds.

report = explore(WORLDS["fan-in"], SystemClock())
assert report.complete and report.violation is None, report.violation
"""

from laminar_core.testing.explorer.search import Report, Violation, explore
from laminar_core.testing.explorer.tasks import Classes
from laminar_core.testing.explorer.topology import Link, Node, World
from laminar_core.testing.explorer.worlds import WORLDS

__all__ = ["WORLDS", "Classes", "Link", "Node", "Report", "Violation", "World", "explore"]
