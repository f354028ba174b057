"""Tables of other libraries, from an object with `__arrow_c_stream__`."""

import threading
import time
from typing import Any, Callable, List


def to_arrow(stream: Any) -> Any:
    """A Table of pyarrow."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("arrow() needs pyarrow: pip install pyarrow") from None
    return pyarrow.RecordBatchReader.from_stream(stream).read_all()


def to_pandas(stream: Any) -> Any:
    """A DataFrame of pandas. Integers are Int64, which can be missing and stay exact; float64 would round them."""
    try:
        import pandas
        import pyarrow
    except ImportError as error:
        raise ImportError(f"df() needs pandas and pyarrow: pip install pandas pyarrow ({error.name} is missing)") from None
    types = {pyarrow.int64(): pandas.Int64Dtype()}
    table = to_arrow(stream)
    # Each column is freed as soon as pandas has it.
    return table.to_pandas(types_mapper=types.get, split_blocks=True, self_destruct=True)


def to_polars(stream: Any) -> Any:
    """A DataFrame of Polars."""
    try:
        import polars
    except ImportError:
        raise ImportError("pl() needs Polars: pip install polars") from None
    return polars.DataFrame(stream)


def answer(stream: Any, query: str) -> Any:
    """The answer of DuckDB to a query, as a relation whose rows are all there."""
    try:
        import duckdb
    except ImportError:
        raise ImportError("sql() needs DuckDB: pip install duckdb") from None

    def ask() -> Any:
        connection = duckdb.connect()
        connection.register("flows", stream)
        connection.execute(f"create temporary table weir_answer as from ({query.strip().rstrip(';')}\n)")
        connection.unregister("flows")
        return connection.table("weir_answer")

    return _interruptible(ask, stream)


def _interruptible(call: Callable[[], Any], stream: Any) -> Any:
    """Calls in another thread: this one handles Ctrl-C, and ends the flows that the call waits for.

    DuckDB reads a stream in threads of its own, which handle no signal, and waits for them. In the thread that handles
    signals, it makes errors of its own of some.
    """
    results: List[Any] = []
    errors: List[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    try:
        thread.start()
        # Again and again: the system may have interrupted another thread than this.
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        # It may be about to start, or to start the program.
        while thread in threading.enumerate():
            stream._refuse(True)
            time.sleep(0.01)
        stream._refuse(False)
        raise
    for error in errors:
        raise error
    return results[0]
