"""Compare locked packages with known vulnerabilities, for ``make check`` and ``make audit``.

The exit code is 1 if a locked package is vulnerable. If the advisories cannot be read, one line
reports it and the exit code is 0, because a change of the code cannot repair the network. An answer
is kept for a day, a failure for an hour, so that ``make check`` stays quick.
"""

import hashlib
import json
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"
KEPT = Path(sys.prefix) / ".audited"
KEPT_FOR_S = {"clean": 86_400, "skipped": 3_600, "vulnerable": 0}
REQUEST_SECONDS_MAX = 5
SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Verdict:
    """The advisories' verdict on the lock file."""

    kind: Literal["clean", "vulnerable", "skipped"]
    lines: tuple[str, ...]


def judge(report: str, errors: str) -> Verdict:
    """Parse the output of pip-audit; ``errors`` is its standard error."""
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (errors.strip().splitlines() or ["no answer"])[-1]
        return Verdict("skipped", (f"skipped, the advisories cannot be reached: {why}",))
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        why = f"PyPI, as it is seen from here, knows none of {len(packages)} packages"
        return Verdict("skipped", (f"skipped, the advisories cannot be reached: {why}",))
    found = [
        f"{package['name']} {package['version']}: {one['id']}, "
        f"mended in {', '.join(one['fix_versions']) or 'no version yet'}"
        for package in known
        for one in package["vulns"]
    ]
    if found:
        return Verdict("vulnerable", tuple(found))
    absent = len(packages) - len(known)
    others = f", {absent} are not on PyPI" if absent else ""
    return Verdict("clean", (f"{len(known)} packages without a known vulnerability{others}",))


def ask(ignored: Iterable[str]) -> Verdict:
    """Look every locked package up."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--disable-pip"]
    command += ["--require-hashes", "--format", "json", "--progress-spinner", "off"]
    command += ["--timeout", str(REQUEST_SECONDS_MAX)]
    command += [word for advisory in ignored for word in ("--ignore-vuln", advisory)]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return judge("", f"no answer within {SECONDS_MAX} s")
    return judge(answer.stdout, answer.stderr)


def kept(path: Path, key: str, now_s: float) -> Verdict | None:
    """Return the last answer, if it is for the same question and recent enough."""
    try:
        found = json.loads(path.read_text())
        verdict = Verdict(found["kind"], tuple(found["lines"]))
        age_s = now_s - float(found["at_s"])
        is_young = 0 <= age_s < KEPT_FOR_S[verdict.kind]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return verdict if is_young and found.get("key") == key else None


def keep(path: Path, key: str, now_s: float, verdict: Verdict) -> None:
    """Write the answer down for ``kept``."""
    path.write_text(json.dumps({"key": key, "at_s": now_s, **asdict(verdict)}))


def main(words: list[str]) -> int:
    """Print the verdict; fail if a package is vulnerable."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ignored = sorted(settings["tool"]["laminar-audit"]["ignore"])
    key = hashlib.sha256(LOCK.read_bytes() + "\n".join(ignored).encode()).hexdigest()
    now_s = time.time()
    verdict = None if "--now" in words else kept(KEPT, key, now_s)
    if verdict is None:
        verdict = ask(ignored)
        keep(KEPT, key, now_s, verdict)
    for line in verdict.lines:
        print(f"audit: {line}")
    return int(verdict.kind == "vulnerable")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
