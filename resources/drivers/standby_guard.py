"""Note the own process id in a file that this process has inherited, then become a program.

usage: standby_guard.py DESCRIPTOR PROGRAM [ARGUMENT]...

The process writes its id itself, so the id is there even if the process that started it has died.
"""

import os
import sys


def main() -> None:
    """Note the id, then become the program."""
    descriptor, program, *arguments = sys.argv[1:]
    os.write(int(descriptor), f"{os.getpid()}\n".encode())
    os.execvp(program, [program, *arguments])  # noqa: S606 - there is no shell to avoid


if __name__ == "__main__":
    main()
