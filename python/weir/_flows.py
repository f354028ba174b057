"""`read`, `store`, `live` and `tcp`: command lines of the program, and the flows that it gives."""

import json
import os
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from . import _native, _program, _progress, _tables

Path = Union[str, "os.PathLike[str]"]
Time = Union[str, datetime]

# What the package itself sets, or what writes elsewhere.
_OWN = {
    "output": "flows come as Arrow",
    "stats": "the ledger is .ledger",
    "quiet": "nothing is printed",
    "verbose": "the ledger is .ledger",
    "html": "nothing else is written",
    "json": "flows come as Arrow",
    "csv": "flows come as Arrow",
    "arrow": "flows come as Arrow",
    "svg": "nothing else is written",
    "top": "all flows come",
    "by": "sum up with .sql(), pandas or Polars",
    "every": "sum up with .sql(), pandas or Polars",
}


class Flows(_native.Source):
    """Flow records of a run of `weir`, a row each.

    pyarrow, Polars, DuckDB and other libraries take the object as it is (`__arrow_c_stream__`). Iterate over it for
    batches of up to 8192 rows. Columns are int64 (counts, octets, durations in ns), float64, timestamp with
    nanoseconds in UTC, or string; what does not apply is null. `fields` has unit and sentence of each column.

    The program is started at once. Each further reader of the same object starts it again, from the begin.
    """

    def df(self) -> Any:
        """All flows as a DataFrame of pandas (needs pandas and pyarrow).

        One row per flow record. Integers are Int64, times datetime64[ns, UTC], texts str.
        """
        return self._take_from(_tables.to_pandas)

    to_pandas = df

    def pl(self) -> Any:
        """All flows as a DataFrame of Polars (needs polars). One row per flow record."""
        return self._take_from(_tables.to_polars)

    def arrow(self) -> Any:
        """All flows as a Table of pyarrow (needs pyarrow). One row per flow record."""
        return self._take_from(_tables.to_arrow)

    def sql(self, query: str) -> Any:
        """The answer to a query of DuckDB from the table `flows` (needs duckdb): a relation, with .df(), .pl(), .fetchall().

        `weir.read("x.pcap").sql("select dst_port, sum(fwd_bytes) from flows group by all")`
        """
        return self._take_from(lambda stream: _tables.answer(stream, query))

    @property
    def columns(self) -> List[str]:
        """The names of the columns."""
        return [name for name, *_ in self.fields]

    @property
    def ledger(self) -> Optional[Dict[str, Any]]:
        """Where every packet of the last whole run went, and every record; None before its end.

        Packets and octets: received, metered, refused (by reason), filtered, dropped. It balances (`balanced`).
        """
        text = self._ledger
        return None if text is None else json.loads(text)

    def _take_from(self, take: Callable[[Any], Any]) -> Any:
        """Lets a library take the flows. Its error is replaced by what happened to the run."""
        self._take_failure()
        try:
            return take(self)
        # Also Ctrl-C, of which a library may have made an error of its own.
        except BaseException as error:
            failure = self._take_failure()
            if isinstance(failure or error, KeyboardInterrupt):
                # Notebooks keep the last traceback, and with it this object.
                self.close()
            if failure is None or isinstance(error, KeyboardInterrupt):
                raise
            raise failure from None

    def __enter__(self) -> "Flows":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<weir.Flows: {len(self.columns)} columns; .df(), .pl(), .arrow(), .sql(), or iterate over batches>"


def read(
    source: Union[Path, Sequence[Path]],
    *,
    where: Optional[str] = None,
    fields: Union[str, Iterable[str], None] = None,
    progress: Optional[bool] = None,
    **options: Any,
) -> Flows:
    """Flows of a capture, or of several that are merged in time order (pcap, pcapng; plain, gzip, zstd).

    source: a path, a list of paths, or generated traffic (`synth:mix,flows=10000,packets=1M`).
    where: only flows that match, as in "port 443 and bytes > 1M" (`weir help views`).
    fields: columns: names, profiles (basic, store, tcp, all), patterns ("*_rtt_ns"). Default: the profile store.
    progress: a line on standard error; default: if that is a terminal or a notebook.
    options: those of `weir read`, with _ for -: idle="60s", filter="tcp port 80", decap=True, tags=["a=x", "b=y"].

    Raises weir.Error with the sentence of the program. weir.FlowWarning says what is missing, as of a capture that is
    cut or being written.
    """
    return _run("read", _sources(source), where, fields, progress, options)


def store(
    folder: Union[Path, Sequence[Path]],
    *,
    where: Optional[str] = None,
    fields: Union[str, Iterable[str], None] = None,
    from_: Optional[Time] = None,
    to: Optional[Time] = None,
    progress: Optional[bool] = None,
    **options: Any,
) -> Flows:
    """Stored flows: of a store (a folder of `-o parquet:FOLDER`), or of files of Parquet, IPFIX or nfdump.

    from_, to: flows that start then, both included: "2026-11-24T14:00", "-2h", or a datetime (without a zone: UTC).
    The other parameters are those of `read`.
    """
    options = {"from": _time(from_), "to": _time(to), **options}
    return _run("read", _sources(folder), where, fields, progress, options)


def live(
    source: str,
    *,
    where: Optional[str] = None,
    fields: Union[str, Iterable[str], None] = None,
    progress: Optional[bool] = None,
    **options: Any,
) -> Flows:
    """Flows of a live interface, as they end: `af_packet:eth0` or `af_xdp:eth0`. Needs CAP_NET_RAW.

    Endless: iterate over batches, which come within a second of their first flow. `.stop()` ends it from the loop or
    another thread; current flows are then its last ones. `.close()` or leaving `with` ends it at once.
    Metering begins with this call.
    """
    if not source.startswith(("af_packet:", "af_xdp:")):
        raise _native.Error(f"{source!r} is no live source: af_packet:INTERFACE or af_xdp:INTERFACE")
    return _run("read", ["--input", source], where, fields, progress, options)


def tcp(
    source: Union[Path, Sequence[Path]],
    *,
    where: Optional[str] = None,
    progress: Optional[bool] = None,
    **options: Any,
) -> Flows:
    """TCP connections of captures, a row each, with the analysis of `weir tcp`: losses, delays, failures.

    Connections that failed come first, then those with the largest share of retransmitted segments (sort="rtt" and
    others). Times are in ns, sizes in octets; fwd_ is from the client, rev_ from the server (`weir help tcp-guide`).
    """
    return _run("tcp", _sources(source), where, None, progress, options)


def _sources(source: Union[Path, Sequence[Path]]) -> List[str]:
    paths = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not paths:
        raise _native.Error("no input: name a capture or a folder of stored flows")
    return ["--", *(os.fspath(path) for path in paths)]


def _time(time: Optional[Time]) -> Optional[str]:
    if not isinstance(time, datetime):
        return time
    utc = time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _run(
    command: str,
    inputs: List[str],
    where: Optional[str],
    fields: Union[str, Iterable[str], None],
    progress: Optional[bool],
    options: Dict[str, Any],
) -> Flows:
    if fields is not None and not isinstance(fields, str):
        fields = ",".join(fields)
    output = ["--output=arrow:-"] if command == "read" else ["--arrow=-"]
    words = [_program.path(), command, "--quiet", *output]
    for name, value in [("where", where), ("fields", fields), *options.items()]:
        words += _option(name.rstrip("_").replace("_", "-"), value)
    shown = _progress.wanted() if progress is None else progress
    what = inputs[1] if len(inputs) == 2 else f"{len(inputs) - 1} inputs"
    return Flows(words + inputs, "-" in inputs, _progress.line(os.path.basename(what)) if shown else None)


def _option(name: str, value: Any) -> Tuple[str, ...]:
    if name in _OWN:
        raise _native.Error(f"{name} is no option here: {_OWN[name]}")
    if value is None or value is False:
        return ()
    if value is True:
        return (f"--{name}",)
    if isinstance(value, (list, tuple)):
        return tuple(word for each in value for word in _option(name, each))
    return (f"--{name}={_time(value) if isinstance(value, datetime) else value}",)
