"""The progress of a run, in a terminal or a notebook: how many flows have come, and for how long."""

import sys
import time
from typing import Callable, Optional

# Runs that are shorter show nothing.
_SHOW_AFTER = 1.0
_INTERVAL = 0.5


def wanted() -> bool:
    """Whether somebody looks: standard error is a terminal or a notebook."""
    if sys.stderr is None:
        return False
    # Kernels of notebooks (ipykernel and others) have a shell of their own.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or hasattr(shell, "kernel")


def line(what: str) -> Callable[[int, bool], None]:
    """A function that shows the number of rows so far; with `is_all`, it removes the line."""
    begin = time.monotonic()
    shown: Optional[float] = None

    def show(rows: int, is_all: bool) -> None:
        nonlocal begin, shown
        now = time.monotonic()
        if is_all:
            if shown is not None:
                sys.stderr.write("\r\033[K" if sys.stderr.isatty() else "\r")
                sys.stderr.flush()
            # The next run counts from its own begin.
            begin, shown = now, None
        elif now - begin >= _SHOW_AFTER and (shown is None or now - shown >= _INTERVAL):
            shown = now
            sys.stderr.write(f"\r{what}: {rows:,} flows, {now - begin:.0f} s ")
            sys.stderr.flush()

    return show
