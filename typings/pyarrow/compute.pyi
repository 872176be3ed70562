# pyarrow ships no types: whatever it returns is Any.

from typing import Any

def __getattr__(name: str) -> Any: ...  # noqa: ANN401 - nothing more is known
