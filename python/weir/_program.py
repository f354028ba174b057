"""The program `weir` of this package, and whether this machine can run it."""

import os
import platform
import sys

# Machines by the number in the header of an ELF file (e_machine).
_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}


def path():
    """The path of the program."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "weir")


def version():
    """The version of the package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of("weir")
    except PackageNotFoundError:
        return "unknown"


def check():
    """Raises ImportError, in one sentence, if this machine cannot run the program."""
    if not sys.platform.startswith("linux"):
        raise ImportError("weir runs on Linux; this is %s" % sys.platform)
    try:
        with open(path(), "rb") as file:
            header = file.read(20)
    except OSError as error:
        raise ImportError("the program of the package weir is missing (%s): install the package again" % error) from None
    built_for = _MACHINES.get(int.from_bytes(header[18:20], "little"), "another architecture")
    if built_for != platform.machine():
        raise ImportError("this package weir is for %s; this machine is %s" % (built_for, platform.machine()))


def main():
    """The command `weir`."""
    check()
    os.execv(path(), ["weir", *sys.argv[1:]])
