"""``az://container/prefix?name=value``: the options of a store in Azure Blob Storage."""

import re
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from laminar_core.objectstore.bucket_options import BucketOptions, checked_endpoint

MIB = 1024**2
ONE_PUT_BYTES_MAX = 5_000 * MIB
"""Azure's limit for a blob that is written with one request."""
SMALL_PUT_BYTES_MAX = 16 * MIB
"""A blob of this size is written within ``read_timeout_ms``."""

_CUSTOMER_KEY = re.compile(r"encryption_key|customer", re.IGNORECASE)
_NOT_SENT_AS_IT_IS = re.compile(r"[^A-Za-z0-9._=,+/-]")


class AzureOptions(BucketOptions):
    """All options of the URI. None: what obstore finds in the environment."""

    scheme: ClassVar[str] = "az"
    example: ClassVar[str] = "az://container/prefix?account_name=myaccount"
    bucket_is_called: ClassVar[str] = "container"
    secrets_advice: ClassVar[str] = (
        "set AZURE_STORAGE_ACCOUNT_KEY or another variable of obstore, or use a managed identity"
    )
    refused: ClassVar[tuple[tuple[re.Pattern[str], str], ...]] = (
        (
            _CUSTOMER_KEY,
            (
                "keys of your own are not supported, because every worker would have to be given "
                "them: use a key of the key vault, which the account names"
            ),
        ),
    )

    account_name: str | None = None
    endpoint: Annotated[str, BeforeValidator(checked_endpoint)] | None = None
    """For a server other than Microsoft's; with the account's name in its path if it wants it."""
    credential_type: str | None = None
    """Which of several credentials is used, for example ``managed_identity``."""
    client_id: str | None = None
    """Identity to use, if the machine has several."""
    tenant_id: str | None = None
    authority_host: Annotated[str, BeforeValidator(checked_endpoint)] | None = None

    retry_budget_ms: int = Field(default=30_000, ge=0)
    """How long one failing request is retried."""
    connect_timeout_ms: int = Field(default=5_000, ge=1)
    read_timeout_ms: int = Field(default=20_000, ge=1)
    """Longest silence of the server, and longest write of a blob up to 16 MiB."""
    large_write_timeout_ms: int = Field(default=600_000, ge=1)
    """Longest write of a larger blob."""

    def conflict(self) -> str | None:
        """See ``BucketOptions.conflict``."""
        if found := _NOT_SENT_AS_IT_IS.search(self.prefix):
            return f"prefix: {found.group()!r} is no letter or digit, and none of . _ = , + -"
        return None
