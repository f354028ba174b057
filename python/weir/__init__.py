"""Exact flow records of captures, live traffic and stores, as Arrow, pandas and Polars.

    import weir

    weir.read("capture.pcap").df()                                # a DataFrame of pandas, a row per flow record
    weir.read("capture.pcap", where="port 443", fields="basic").pl()
    weir.read(["a.pcap", "b.pcapng.gz"]).sql("select dst_port, sum(fwd_bytes) from flows group by all")
    weir.store("flows", from_="-2h").arrow()                      # of the last two hours of a store
    for batch in weir.live("af_packet:eth0"):                     # up to 8192 flows at a time
        print(batch.pl())

The package has the program `weir`; each function starts it and takes its flows batch by batch. Nothing is made per flow.
`weir help fields` and `weir fields` list the columns, `weir help views` the expressions of `where`.
"""

import sys as _sys

if _sys.version_info < (3, 10):
    raise ImportError("weir needs Python 3.10 or newer; this is Python %d.%d" % _sys.version_info[:2])

from ._program import check as _check

_check()

from ._flows import Flows, live, read, store, tcp
from ._native import Batch, Error, FlowWarning
from ._program import version as _version

__all__ = ["Batch", "Error", "FlowWarning", "Flows", "live", "read", "store", "tcp"]
__version__ = _version()
