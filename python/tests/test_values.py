"""Columns and values of flows, compared with what the program writes as JSON."""

import datetime
import json
import pathlib
import tempfile

import weir
from support import CAPTURES, ROOT, WEB, Case, json_flows, needs, program


def nanoseconds(text):
    """A time of JSON in ns since 1970."""
    whole, rest = text.rstrip("Z").split(".")
    seconds = datetime.datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(seconds) * 1_000_000_000 + int(rest)


@needs("pyarrow")
class Values(Case):
    def rows(self, flows):
        """Rows of a stream, with times in ns."""
        import pyarrow

        table = flows.arrow()
        for index, field in enumerate(table.schema):
            if pyarrow.types.is_timestamp(field.type):
                self.assertEqual((field.type.unit, field.type.tz), ("ns", "UTC"))
                table = table.set_column(index, field.name, table.column(index).cast(pyarrow.int64()))
        return table.to_pylist()

    def compare(self, flows, expected):
        """Each value of each flow is that of JSON; a missing one is null or left out there."""
        times = {name for name, kind, *_ in flows.fields if kind.startswith("timestamp")}
        rows = self.rows(flows)
        self.assertEqual(len(rows), len(expected))
        for row, flow in zip(rows, expected):
            for name, value in row.items():
                other = flow.get(name)
                if name in times and other is not None:
                    other = nanoseconds(other)
                elif isinstance(value, str) and not isinstance(other, str):
                    # Lists of words are one text in CSV and Arrow.
                    other = " ".join(map(str, other)) if isinstance(other, list) else str(other).lower()
                self.assertEqual(value, other, name)
            self.assertLessEqual(set(flow), set(row))

    def test_flows_of_all_captures_are_those_of_json(self):
        self.assertGreater(len(CAPTURES), 5)
        for capture in CAPTURES:
            with self.subTest(capture=capture.name):
                self.compare(weir.read(capture), json_flows(str(capture)))

    def test_several_captures_are_merged(self):
        paths = CAPTURES[:2]
        self.compare(weir.read(paths), json_flows(*map(str, paths)))

    def test_flows_of_a_store_are_those_of_json(self):
        with tempfile.TemporaryDirectory() as folder:
            store = pathlib.Path(folder, "flows")
            program("read", str(WEB), "-q", "-o", f"parquet:{store}")
            self.compare(weir.store(store), json_flows(str(store)))
            begin = datetime.datetime(2026, 11, 21, 2, 51, 17, 920000)
            late = weir.store(store, from_=begin, where="tcp").arrow().num_rows
            expected = [flow for flow in json_flows(str(store), "--where", "tcp") if flow["start_time"] >= begin.isoformat()]
            self.assertEqual(late, len(expected))
            self.assertGreater(late, 0)
            self.assertEqual(weir.store(store, to="2020-01-01").arrow().num_rows, 0)
            self.assertGreater(weir.store(store, from_=begin.replace(tzinfo=datetime.timezone.utc)).arrow().num_rows, 0)

    def test_connections_are_those_of_json(self):
        flows = weir.tcp(WEB, sort="start")
        expected = json.loads(program("tcp", str(WEB), "-q", "--json", "-", "--sort", "start")[0])["list"]
        self.compare(flows, expected)
        self.assertEqual(flows.ledger["packets"]["received"], 120)
        self.assertEqual(len(expected), weir.tcp(WEB, where="tcp").arrow().num_rows)

    def test_a_stream_of_no_flow_has_the_columns(self):
        table = weir.read(WEB, where="port 1", fields="src_ip,bytes").arrow()
        self.assertEqual((table.num_rows, table.column_names), (0, ["src_ip", "bytes"]))


class Tables(Case):
    def setUp(self):
        super().setUp()
        self.expected = json_flows(str(WEB))
        self.octets = sum(flow["fwd_bytes"] for flow in self.expected)

    @needs("pandas", "pyarrow")
    def test_pandas_has_exact_integers(self):
        frame = weir.read(WEB).df()
        self.assertEqual((len(frame), frame.fwd_bytes.sum()), (len(self.expected), self.octets))
        kinds = {str(frame[name].dtype) for name, kind, *_ in weir.read(WEB).fields if kind == "int64"}
        self.assertEqual(kinds, {"Int64"})
        self.assertEqual(str(frame.start_time.dtype), "datetime64[ns, UTC]")

    @needs("polars")
    def test_polars_takes_an_object_as_it_is(self):
        import polars

        for frame in (weir.read(WEB).pl(), polars.DataFrame(weir.read(WEB))):
            self.assertEqual((len(frame), frame["fwd_bytes"].sum()), (len(self.expected), self.octets))
            self.assertEqual(frame["start_time"].dtype, polars.Datetime("ns", "UTC"))

    @needs("pyarrow")
    def test_pyarrow_takes_an_object_as_it_is(self):
        import pyarrow

        table = pyarrow.table(weir.read(WEB))
        self.assertEqual((table.num_rows, sum(table["fwd_bytes"].to_pylist())), (len(self.expected), self.octets))
        self.assertEqual(table.schema.field("duration_ns").metadata[b"unit"], b"ns")

    @needs("duckdb")
    def test_sql_answers_questions(self):
        flows = weir.read(WEB)
        answer = flows.sql("select sum(fwd_bytes)::bigint, count(*) from flows; ").fetchall()
        self.assertEqual(answer, [(self.octets, len(self.expected))])
        self.assertEqual(flows.ledger["packets"]["received"], 120)
        ordered = [port for port, in flows.sql("select dst_port from flows -- all\norder by 1 desc").fetchall()]
        self.assertEqual(ordered, sorted((flow["dst_port"] for flow in self.expected), reverse=True))
        import duckdb

        with self.assertRaises(duckdb.Error):
            flows.sql("select nothing from flows")

    @needs("polars", "pandas", "pyarrow")
    def test_batches_are_tables_of_their_own(self):
        import polars
        import pyarrow

        sizes = [len(batch) for batch in weir.read("synth:mix,flows=50000,packets=60000")]
        self.assertLessEqual(max(sizes), 8192)
        self.assertGreater(len(sizes), 1)
        batch, = weir.read(WEB)
        self.assertEqual((batch.num_rows, batch.num_columns), (len(self.expected), len(batch.fields)))
        for frame in (batch.pl(), batch.df(), polars.DataFrame(batch)):
            self.assertEqual((len(frame), frame["fwd_bytes"].sum()), (len(self.expected), self.octets))
        self.assertEqual(pyarrow.record_batch(batch).num_rows, batch.arrow().num_rows)

    @needs("pyarrow")
    def test_memory_of_a_batch_outlives_its_run(self):
        import pyarrow

        batches = iter(weir.read("synth:mix,flows=20000,packets=40000", fields="fwd_bytes"))
        table = pyarrow.record_batch(next(batches))
        before = table.to_pylist()
        batches.close()
        del batches
        self.assertEqual(table.to_pylist(), before)

    @needs("pyarrow")
    def test_each_reader_gets_all_flows(self):
        flows = weir.read(WEB)
        self.assertEqual([flows.arrow().num_rows for _ in range(3)], 3 * [len(self.expected)])
        self.assertEqual(sum(map(len, flows)), len(self.expected))

    def test_columns_have_units_and_sentences(self):
        flows = weir.read(WEB, fields=["src_ip", "duration_ns", "start_time"])
        name, kind, unit, sentence = flows.fields[1]
        self.assertEqual((name, kind, unit), ("duration_ns", "int64", "ns"))
        self.assertIn("start_time", sentence)
        self.assertEqual([kind for _, kind, *_ in flows.fields], ["string", "int64", "timestamp[ns, UTC]"])
        self.assertEqual(flows.columns, ["src_ip", "duration_ns", "start_time"])

    def test_the_ledger_is_that_of_the_program(self):
        flows = weir.read(WEB)
        self.assertIsNone(flows.ledger)
        list(flows)
        self.assertEqual(flows.ledger["packets"]["metered"], 120)
        self.assertIs(flows.ledger["balanced"], True)

    def test_the_command_and_the_package_have_one_version(self):
        self.assertIn(weir.__version__, program("--version")[0])
        self.assertIn(f'version = "{weir.__version__}"', (ROOT / "Cargo.toml").read_text())
