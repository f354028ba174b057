"""What several tests need: captures, the program of the package, and processes."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import weir
from weir import _program

ROOT = pathlib.Path(__file__).resolve().parents[2]
CAPTURES = sorted(path for path in (ROOT / "testdata/captures").glob("*.pcap*") if path.suffix != ".json")
WEB = ROOT / "testdata/captures/web.pcap"
# For what happens soon, also on a busy machine.
BOUND = 60


def needs(*names):
    """Skips a test without these packages."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def program(*arguments, code=0):
    """What the program writes to standard output, and to standard error."""
    done = subprocess.run([_program.path(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: code {done.returncode}, {done.stderr}")
    return done.stdout, done.stderr


def json_flows(*arguments):
    """The flows of `weir read -o json:-`, with all columns of the store."""
    return [json.loads(line) for line in program("read", "-q", "-o", "json:-", "--fields", "store", *arguments)[0].splitlines()]


def children():
    """Processes that this one has started, also those that have ended and were not reaped."""
    found = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update((task / "children").read_text().split())
    return found


def wait_until(condition, what):
    """Waits until something is so."""
    end = time.monotonic() + BOUND
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {BOUND} s: {what}")
        time.sleep(0.01)


def python(code, **environment):
    """Runs Python, and returns its standard output and its standard error."""
    variables = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=BOUND)
    return done.stdout, done.stderr


@contextlib.contextmanager
def stalled_capture():
    """A pipe in the file system with some packets, whose writer stays: a capture that never ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stalled.pcap")
        os.mkfifo(path)
        # For reading, too: so it opens without a reader, and the reader finds no end.
        pipe = os.open(path, os.O_RDWR)
        os.write(pipe, WEB.read_bytes()[:30_000])
        try:
            yield path
        finally:
            os.close(pipe)


@contextlib.contextmanager
def interrupt(when):
    """Ctrl-C for this process, as soon as something is so."""

    def press():
        wait_until(when, "the moment of Ctrl-C")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        thread.join()


class Case(unittest.TestCase):
    """A test that leaves no process behind."""

    def setUp(self):
        self.before = children()
        self.addCleanup(self.no_process_is_left)

    def no_process_is_left(self):
        self.assertEqual(children(), self.before)

    def error_of(self, call, *arguments, **options):
        """The text of the error that a call raises."""
        with self.assertRaises(weir.Error) as caught:
            call(*arguments, **options)
        return str(caught.exception)
