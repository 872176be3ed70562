"""Whether hosts can be made here."""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("ip", "ss", "unshare", "nsenter", "bash", "mount")
"""iproute2, util-linux and bash."""
_EVERYTHING = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc"]


def missing() -> str | None:
    """Return what is missing to make hosts; None: nothing is."""
    if not sys.platform.startswith("linux"):
        return "namespaces are a part of Linux"
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"no {', '.join(absent)}: install iproute2, util-linux and bash"
    if os.geteuid() != 0:
        return "only root may make namespaces"
    return _refusal()


def _refusal() -> str | None:
    """Return the kernel's reason, where even root may make no namespaces, as in many containers."""
    try_veth = ["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
    tried = subprocess.run(  # noqa: S603 - its own words
        [*_EVERYTHING, *try_veth], capture_output=True, text=True, check=False
    )
    if tried.returncode == 0:
        return None
    return f"the kernel refuses namespaces: {tried.stderr.strip() or tried.returncode}"
