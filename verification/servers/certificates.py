"""A certificate authority for one run, and a certificate that it has signed.

Java's ``keytool`` makes them. It is started as a class of the Java that runs the broker, because a
runtime without developer tools has the class and not always the command.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

STORE_PASSWORD = "not-a-secret"  # noqa: S105 - keytool wants one; the keys live as long as a run
_KEYTOOL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-m")
_CLASS = "java.base/sun.security.tools.keytool.Main"
_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files of an authority are."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate of the authority, in PEM, for clients."""
        return self.folder / "authority.pem"

    @property
    def server_keys(self) -> Path:
        """Key and chain of the server, in PKCS #12 with ``STORE_PASSWORD``."""
        return self.folder / "server.p12"


def make_certificates(java: str, folder: Path, host: str) -> Certificates:
    """Make an authority, and a certificate for the address ``host``; return what is there already.

    Raises:
        RuntimeError: keytool failed; the message is its own.
    """
    made = Certificates(folder)
    if made.authority.exists():
        return made
    folder.mkdir(parents=True)
    authority = ("-dname", "CN=authority of this run", "-ext", "bc:c", "-ext", "ku:c=keyCertSign")
    server = ("-signer", "authority", "-dname", f"CN={host}", "-ext", f"san=ip:{host}")
    _keytool(java, made, "-genkeypair", "-alias", "authority", *authority, *_KEY)
    _keytool(java, made, "-genkeypair", "-alias", "server", *server, *_KEY)
    draft = folder / "draft.pem"
    _keytool(java, made, "-exportcert", "-rfc", "-alias", "authority", "-file", str(draft))
    _keytool(java, made, "-delete", "-alias", "authority")  # The server needs no key of it.
    draft.rename(made.authority)
    return made


def _keytool(java: str, made: Certificates, *words: str) -> None:
    store = ("-keystore", str(made.server_keys), "-storetype", "PKCS12")
    done = subprocess.run(  # noqa: S603 - its own words
        [java, *_KEYTOOL, _CLASS, *words, *store, "-storepass", STORE_PASSWORD],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"keytool failed: {(done.stdout or done.stderr)[-2000:]}")
