"""Behaves like a waiting ``laminar run --standby``: ends at SIGUSR1, unless it is the driver."""

import signal
import subprocess
import sys

if sys.argv[1] == "dies":
    sys.exit(3)
if sys.argv[1] == "drives":
    signal.signal(signal.SIGUSR1, lambda *_: None)
# As a JVM: it lives on for a while, and is no proof of the standby.
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("waits", child.pid, flush=True)  # noqa: T201
while True:
    signal.pause()
