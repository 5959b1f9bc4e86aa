"""The command `agentmem`, also as `python -m agentmem`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_USAGE, _INTERRUPTED = 2, 130
_NEEDED = ("click", "rich")


def main() -> int:
    """Run the command line and return the exit code; without its packages say how to get them."""
    if sys.argv[1:2] == ["hook"]:  # which has a fraction of a second, and needs none of that
        return _hook(sys.argv[2:])
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        if sys.stderr is not None:
            sys.stderr.write(
                f"agentmem: the command line needs {' and '.join(missing)}:"
                " install the extra from the checkout with pip install '.[cli]'\n"
            )
        return _USAGE
    try:
        from agentmem.adapters.cli.root import run

        return run()
    except KeyboardInterrupt:  # before the command line is there to say so
        return _INTERRUPTED


def _hook(arguments: list[str]) -> int:
    """Run a hook. It has no time to collect garbage in a process so short, and is never interrupted with a traceback."""
    import gc
    import os
    import signal

    gc.disable()
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    from agentmem.adapters.hooks.command import leave, main

    main(arguments)
    leave()


if __name__ == "__main__":
    sys.exit(main())
