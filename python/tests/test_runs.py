"""What happens to runs: errors, warnings, Ctrl-C, dropped readers, forks, threads."""

import gc
import io
import os
import pathlib
import platform
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from unittest import mock

import weir
from support import BOUND, WEB, Case, children, interrupt, needs, program, python, stalled_capture, wait_until
from weir import _native, _progress, _program

MANY = "synth:mix,flows=50000,packets=60000"


class Errors(Case):
    def test_the_sentence_is_that_of_the_program_with_the_marked_place(self):
        for where in ("byts > 3 and", "bytes >"):
            _, printed = program("read", str(WEB), "--where", where, code=1)
            text = self.error_of(weir.read, WEB, where=where)
            self.assertEqual("error: " + text, printed.split("\n\nFor more")[0])
            self.assertIn("^", text.splitlines()[-1])

    def test_errors_are_one_sentence(self):
        for call in (
            lambda: weir.read("missing.pcap"),
            lambda: weir.read(WEB, fields="srcip"),
            lambda: weir.read(WEB, output="flows.csv"),
            lambda: weir.read(WEB, by="host"),
            lambda: weir.read([]),
            lambda: weir.read(__file__),
            lambda: weir.live("eth0"),
            lambda: weir.live("af_packet:none0"),
            lambda: weir.store(WEB.parent / "none"),
        ):
            text = self.error_of(call)
            self.assertEqual(len(text.splitlines()), 1, text)
            self.assertFalse(text.startswith(("weir:", "error:")), text)
        text = self.error_of(weir.read, WEB, idel="3s").splitlines()
        self.assertEqual((text[0], text[-1]), ("unexpected argument '--idel' found", "  tip: a similar argument exists: '--idle'"))

    def test_a_capture_that_is_being_written_gives_its_flows_and_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "growing.pcap")
            path.write_bytes(WEB.read_bytes()[:30_000])
            with self.assertWarnsRegex(weir.FlowWarning, "32 packets before it were read") as caught:
                flows = weir.read(path)
                self.assertEqual(sum(map(len, flows)), 2)
            self.assertEqual(len(caught.warnings), 1)
            self.assertEqual(flows.ledger["packets"]["metered"], 32)
            with warnings.catch_warnings():
                warnings.simplefilter("error", weir.FlowWarning)
                with self.assertRaises(weir.FlowWarning):
                    list(weir.read(path))
            path.write_bytes(b"")
            self.assertIn("empty", self.error_of(weir.read, path))

    def test_a_program_that_is_killed_is_an_error(self):
        with stalled_capture() as path:
            batches = iter(weir.read(path))
            child, = children() - self.before
            os.kill(int(child), signal.SIGKILL)
            self.assertIn("signal 9", self.error_of(list, batches))

    def test_another_machine_or_python_is_one_sentence(self):
        with mock.patch.object(platform, "machine", return_value="riscv64"):
            with self.assertRaisesRegex(ImportError, f"is for {os.uname().machine}; this machine is riscv64"):
                _program.check()
        with mock.patch.object(_program, "path", return_value="/none"):
            with self.assertRaisesRegex(ImportError, "the program of the package weir is missing"):
                _program.check()
        _, printed = python("import sys; sys.version_info = (3, 9, 1); import weir")
        self.assertTrue(printed.endswith("ImportError: weir needs Python 3.10 or newer; this is Python 3.9\n"), printed)

    def test_a_missing_library_is_one_sentence(self):
        for name, call in [("pyarrow", "arrow"), ("polars", "pl"), ("pandas", "df"), ("duckdb", "sql")]:
            with mock.patch.dict(sys.modules, {name: None}):
                with self.assertRaisesRegex(ImportError, f"pip install .*{name}"):
                    getattr(weir.read(WEB), call)(*(["from flows"] if call == "sql" else []))

    @needs("duckdb")
    def test_sql_needs_no_other_library(self):
        code = f"""
import sys
sys.modules.update(pyarrow=None, pandas=None, polars=None, numpy=None)
import weir
print(weir.read({str(WEB)!r}).sql("select count(*) from flows").fetchall())"""
        self.assertEqual(python(code)[0], "[(8,)]\n", python(code)[1])


class Ends(Case):
    def test_a_reader_that_is_dropped_half_way_ends_its_program(self):
        batches = iter(weir.read(MANY))
        next(batches)
        self.assertEqual(len(children() - self.before), 1)
        del batches
        gc.collect()
        self.no_process_is_left()

        def first():
            for batch in weir.read(MANY):
                yield batch

        generator = first()
        next(generator)
        generator.close()
        self.no_process_is_left()

    def test_flows_that_nobody_reads_leave_no_process(self):
        weir.read(MANY)
        self.no_process_is_left()
        with weir.read(MANY) as flows:
            next(iter(flows))
        self.no_process_is_left()

    def test_a_stream_that_is_released_half_way_ends_its_program(self):
        flows = weir.read(MANY)
        stream = flows.__arrow_c_stream__()
        flows.__arrow_c_schema__()
        self.assertEqual(len(children() - self.before), 1)
        del stream, flows
        self.no_process_is_left()

    def test_close_in_another_thread_ends_a_reader_that_waits(self):
        with stalled_capture() as path:
            flows = weir.read(path)
            closer = threading.Timer(0.2, flows.close)
            closer.start()
            self.assertEqual(self.error_of(list, flows), "these flows were closed before their end")
            closer.join()

    def test_stop_gives_the_flows_so_far(self):
        with stalled_capture() as path:
            flows = weir.read(path)
            batches = iter(flows)
            stopper = threading.Timer(0.2, flows.stop)
            stopper.start()
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                rows = sum(map(len, batches))
            stopper.join()
            self.assertGreaterEqual(rows, 0)
            self.assertIs(flows.ledger["balanced"], True)

    def test_many_runs_leave_no_descriptor(self):
        list(weir.read(WEB))
        ledgers = lambda: set(pathlib.Path(tempfile.gettempdir()).glob("weir-ledger-*"))
        before = (len(os.listdir("/proc/self/fd")), ledgers())
        for _ in range(5):
            next(iter(weir.read(MANY)))
        self.assertEqual((len(os.listdir("/proc/self/fd")), ledgers()), before)


class Interrupts(Case):
    def ctrl_c_ends(self, read):
        with stalled_capture() as path:
            flows = weir.read(path)
            started = time.monotonic()
            with interrupt(lambda: time.monotonic() > started + 0.2):
                with self.assertRaises(KeyboardInterrupt):
                    read(flows)
                    # The handler runs at the latest here, where a library made an error of its own of it.
                    time.sleep(BOUND)
            del flows
            self.no_process_is_left()

    def test_ctrl_c_ends_a_loop(self):
        self.ctrl_c_ends(list)

    @needs("polars")
    def test_ctrl_c_ends_polars(self):
        self.ctrl_c_ends(lambda flows: flows.pl())

    @needs("pyarrow")
    def test_ctrl_c_ends_pyarrow(self):
        self.ctrl_c_ends(lambda flows: flows.arrow())

    @needs("duckdb")
    def test_ctrl_c_ends_duckdb(self):
        self.ctrl_c_ends(lambda flows: flows.sql("select count(*) from flows"))

    def test_ctrl_c_ends_a_start_that_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            # Nobody writes to it, so the program waits before it has read anything.
            os.mkfifo(path)
            with interrupt(lambda: children() - self.before):
                with self.assertRaises(KeyboardInterrupt):
                    list(weir.read(path))


class Processes(Case):
    def test_the_lock_is_released_while_a_run_is_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            octets = WEB.read_bytes()

            def write():
                with open(path, "wb") as pipe:
                    for begin in range(0, len(octets), 10_000):
                        pipe.write(octets[begin : begin + 10_000])

            thread = threading.Thread(target=write)
            thread.start()
            # Without the release, the thread could not write, and this would wait for ever.
            self.assertEqual(sum(map(len, weir.read(path))), 8)
            thread.join()

    def test_runs_side_by_side_are_independent(self):
        rows = []
        threads = [threading.Thread(target=lambda: rows.append(sum(map(len, weir.read(WEB))))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(rows, 4 * [8])

    def test_a_forked_process_has_runs_of_its_own(self):
        flows = weir.read(MANY)
        batches = iter(flows)
        next(batches)
        reader, writer = os.pipe()
        # A connection of DuckDB that another test has left cannot be released in the child: it joins threads.
        gc.collect()
        child = os.fork()
        if child == 0:
            # No exception may leave the copy of this test.
            text = "nothing"
            try:
                text = f"{sum(map(len, weir.read(WEB)))} {sum(map(len, flows)) > 8192} "
                try:
                    next(batches)
                except weir.Error as error:
                    text += str(error)
                del batches, flows
                gc.collect()
            except BaseException as error:
                text = repr(error)
            finally:
                os.write(writer, text.encode())
                os._exit(0)
        os.close(writer)
        text = b""
        while octets := os.read(reader, 4096):
            text += octets
        os.close(reader)
        os.waitpid(child, 0)
        sentence = "these flows belong to the process that asked for them, before a fork; ask again in this one"
        self.assertEqual(text.decode(), f"8 True {sentence}")
        # That of this process goes on.
        self.assertGreater(sum(map(len, batches)), 0)

    def test_a_program_that_ignores_its_children_is_told(self):
        code = f"""
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import weir
try:
    print(len(list(weir.read({str(WEB)!r}))))
except weir.Error as error:
    print(error)"""
        self.assertIn("waited for all of its children", python(code)[0])

    def test_live_flows_come_while_they_end(self):
        try:
            flows = weir.live("af_packet:lo", idle="1s", where="udp and port 47999")
        except weir.Error as error:
            self.skipTest(str(error).splitlines()[0])
        received = []

        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                while not received:
                    sender.sendto(b"flow", ("127.0.0.1", 47999))
                    time.sleep(0.05)

        thread = threading.Thread(target=send)
        thread.start()
        stopper = threading.Timer(3, flows.stop)
        stopper.start()
        with flows:
            for batch in flows:
                received.append(batch.num_rows)
        received.append(0)
        thread.join()
        stopper.join()
        self.assertGreater(sum(received), 0)


class Progress(Case):
    def test_progress_is_for_terminals_and_notebooks(self):
        text = io.StringIO()
        with mock.patch.object(sys, "stderr", text):
            self.assertFalse(_progress.wanted())
            with mock.patch.object(text, "isatty", return_value=True):
                self.assertTrue(_progress.wanted())
            notebook = mock.Mock(get_ipython=lambda: mock.Mock(spec=["kernel"]))
            with mock.patch.dict(sys.modules, {"IPython": notebook}):
                self.assertTrue(_progress.wanted())

    def test_a_long_run_is_shown(self):
        text = io.StringIO()
        with mock.patch.object(sys, "stderr", text), mock.patch.object(_progress, "_SHOW_AFTER", 0):
            list(weir.read(WEB, progress=True))
            self.assertIn("web.pcap: 8 flows", text.getvalue())
            shown = text.getvalue()
            list(weir.read(WEB, progress=False))
            list(weir.read(WEB))
            self.assertEqual(text.getvalue(), shown)


class Stubs(Case):
    def test_the_stubs_have_all_names(self):
        text = (pathlib.Path(weir.__file__).parent / "_native.pyi").read_text()
        for name in ("Batch", "Batches", "Source"):
            members = [member for member in vars(getattr(_native, name)) if not member.startswith("__")]
            for member in [f"class {name}", *(f"def {member}(" for member in members)]:
                self.assertIn(member, text)
