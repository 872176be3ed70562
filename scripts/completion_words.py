"""Write ``laminar_core/cli/completion.json``: what the shell can complete."""

import json

from laminar_core.cli.completion import WORDS, described
from laminar_core.cli.main import laminar

if __name__ == "__main__":
    text = json.dumps(described(laminar.load_all()), indent=1, ensure_ascii=False)
    WORDS.write_text(text + "\n", encoding="utf-8")
