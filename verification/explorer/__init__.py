"""Explores every interleaving of the real machines in small worlds.

report = explore(WORLDS["fan-in"], SystemClock())
assert report.complete and report.violation is None, report.violation
"""

from verification.explorer.search import Report, Violation, explore
from verification.explorer.tasks import Classes
from verification.explorer.topology import Link, Node, World
from verification.explorer.worlds import WORLDS

__all__ = ["WORLDS", "Classes", "Link", "Node", "Report", "Violation", "World", "explore"]
