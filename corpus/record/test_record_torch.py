"""Tests of the recorder without torch: a stand-in answers from a recorded decision log, and what the recorder writes must be
that log again, but for what PyTorch does not tell."""
import gzip
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record_torch as rt  # noqa: E402

DECISIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../harness/conform/testdata/decisions")


class FromLog:
    """torch.cuda as a decision log says it went."""

    def __init__(self, rows, capacity):
        self.rows, self.capacity, self.next = rows, capacity, 0
        self.segments = {}  # ordinal -> [base, size, expandable, stream]
        self.live = {}      # address -> size
        self.base = 0x7f0000000000
        self.seen_streams = []

    # What the rows need: a row is used up by the call of the operation, or by reading the statistics.
    def row(self):
        return self.rows[self.next]

    def alloc(self, size, stream):
        self.events(stream)
        r = self.row()
        if r["outcome"] == "oom":
            raise self.oom("out of memory")
        if size == 0:
            return 0
        address = self.segments[int(r["segment"])][0] + int(r["offset"])
        self.live[address] = int(r["block_size"])
        return address

    def delete(self, address):
        del self.live[address]

    def events(self, stream=None):
        for e in self.row()["driver_events"].split(";"):
            if e.startswith(("malloc:", "reserve:")):
                size, ordinal = e.split(":")[1].split("=s")
                self.segments[int(ordinal)] = [self.base, int(size), e.startswith("reserve"), stream]
                self.base += int(size) + (1 << 30)
            elif e.startswith(("free:s", "unreserve:s")):
                del self.segments[int(e.split(":s")[1])]

    def stats(self):
        r = self.row()
        self.next += 1
        keys = dict(zip(rt.STATS, ["allocated", "active", "reserved", "requested", "inactive_split"]))
        keys.update({"segment.all.current": "segments", "num_alloc_retries": "alloc_retries", "num_ooms": "ooms"})
        return {k: int(r[c]) for k, c in keys.items()}

    def snapshot(self):
        out = []
        for base, size, expandable, stream in self.segments.values():
            blocks = [{"address": a, "size": n, "state": "active_allocated"}
                      for a, n in sorted(self.live.items()) if base <= a < base + size]
            if expandable and not blocks:
                continue
            out.append({"address": base, "total_size": size, "stream": stream, "segment_type": "large",
                        "is_expandable": expandable, "blocks": blocks})
        return out

    def module(self):
        """A module that looks like torch to record_torch.Torch."""
        self.oom = type("OutOfMemoryError", (RuntimeError,), {})
        stream = types.SimpleNamespace(synchronize=lambda: None)

        def named(s):
            if s not in self.seen_streams:
                self.seen_streams.append(s)
            return self.seen_streams.index(s)
        empties = []

        def empty_cache():
            if empties:  # the first is the recorder's own, before it starts
                self.events()
            empties.append(1)
        cuda = types.SimpleNamespace(
            caching_allocator_alloc=lambda size, stream: self.alloc(size, named(id(stream))),
            caching_allocator_delete=self.delete, memory_stats=self.stats, memory_snapshot=self.snapshot,
            mem_get_info=lambda: (self.capacity, self.capacity), synchronize=lambda: None, empty_cache=empty_cache,
            default_stream=lambda: stream, Stream=lambda: types.SimpleNamespace(synchronize=lambda: None))
        return types.SimpleNamespace(cuda=cuda, OutOfMemoryError=self.oom)


def golden():
    """(name, config, capacity, trace text, rows) of each committed log of a classic allocator without `record`."""
    with open(os.path.join(DECISIONS, "index.tsv")) as f:
        for line in f.read().splitlines()[1:]:
            name, config, conf, capacity = line.split("\t")[:4]
            text = rt.read_text(os.path.join(DECISIONS, "traces", name + ".trace.gz"))
            if "record" in text or "expandable" in conf:
                continue
            log = rt.read_text(os.path.join(DECISIONS, "logs", "%s__%s.tsv.gz" % (name, config))).splitlines()
            columns = log[0].split("\t")
            yield name, config, int(capacity), text, [dict(zip(columns, l.split("\t"))) for l in log[1:]]


class WriterTest(unittest.TestCase):
    def test_written_log_is_the_recorded_one(self):
        logs = 0
        for name, config, capacity, text, rows in golden():
            if len(rows) > 1500 or logs == 6:  # each row takes a snapshot
                continue
            _, ops = rt.parse_trace(name, text)
            stub = FromLog(rows, capacity)
            with tempfile.TemporaryDirectory() as out:
                recorder = rt.Recorder(rt.Torch(stub.module()))
                ooms = rt.write_folder(out, name, text, "", None, recorder, ops)
                written = rt.read_text(os.path.join(out, "logs", name + "__torch.tsv.gz")).splitlines()
                self.assertEqual(written[0].split("\t"), rt.COLUMNS)
                self.assertEqual(len(written) - 1, len(rows))
                seen = 0
                for line, want in zip(written[1:], rows):
                    got = dict(zip(rt.COLUMNS, line.split("\t")))
                    address = got.pop("address")
                    self.assertEqual(address == "-", want["segment"] == "-")
                    for column, value in got.items():
                        if value == "?":
                            self.assertIn(column, ("device_free", "driver_events"))
                            seen += 1
                        else:
                            self.assertEqual(value, want[column], "%s__%s: %s: %s" % (name, config, column, line))
                self.assertEqual(seen, 2 * len(rows))
                self.assertEqual(ooms, sum(r["outcome"] == "oom" for r in rows))
                with open(os.path.join(out, "index.tsv")) as f:
                    index = f.read().splitlines()
                self.assertEqual(len(index), 2)
                self.assertEqual(index[1].split("\t")[:6], [name, "torch", "-", str(capacity), "-", str(len(rows))])
                again = rt.read_text(os.path.join(out, "traces", name + ".trace.gz"))
                self.assertEqual(rt.parse_trace(name, again)[1], ops)
            logs += 1
        self.assertGreaterEqual(logs, 2)


class RegionsTest(unittest.TestCase):
    def test_ordinals(self):
        r = rt.Regions(80 << 30)

        def classic(*addresses):
            return [{"address": a, "total_size": 2 << 20, "stream": 0, "segment_type": "small"} for a in addresses]
        r.update(classic(0x2000000, 0x1000000))
        self.assertEqual([r.holding(0x1000000)[2], r.holding(0x2000000)[2]], [0, 1])
        r.update(classic(0x2000000))
        self.assertIsNone(r.holding(0x1000000))
        r.update(classic(0x2000000, 0x1000000))
        self.assertEqual(r.holding(0x1000000)[2], 2, "an address that comes again is another region")

    def test_runs_of_an_expandable_segment_are_one_region(self):
        r = rt.Regions(80 << 30)

        def runs(*addresses, stream=0):
            return [{"address": a, "total_size": 20 << 20, "stream": stream, "segment_type": "large", "is_expandable": True}
                    for a in addresses]
        base = 0x600000000000
        r.update(runs(base))
        r.update(runs(base, base + (60 << 20)))
        self.assertEqual(r.holding(base + (61 << 20))[2], 0)
        r.update(runs(base) + runs(base + (100 << 30), stream=7))
        self.assertEqual(r.holding(base + (100 << 30))[2], 1)


class TraceTest(unittest.TestCase):
    def test_header_units_and_liveness(self):
        header, ops = rt.parse_trace("t", "# conf: max_split_size_mb:64\n# fraction: 0.5\nalloc 1 1.5GiB stream=2 # first\n"
                                          "sync\nsync stream=2\nempty_cache\nfree 1\nconf a:1,b:2\nfraction 0.25\n")
        self.assertEqual(header, {"conf": "max_split_size_mb:64", "fraction": "0.5"})
        self.assertEqual(ops, [("alloc", 1, 3 << 29, 2), ("sync", None), ("sync", 2), ("empty_cache",), ("free", 1),
                               ("conf", "a:1,b:2"), ("fraction", 0.25)])

    def test_what_cannot_be_recorded(self):
        for text, want in (("alloc 1 2\nrecord 1 stream=3\n", "t:2: record 1 stream=3: torch.cuda.caching_allocator_alloc"),
                           ("foreign 5\n", "no way to foreign"), ("alloc 1 x\n", "'x' is not a size"),
                           ("alloc 1 2\nalloc 1 2\n", "the id is live"), ("free 1\n", "the id is not live"),
                           ("fly 1\n", "unknown operation")):
            with self.assertRaises(rt.TraceError) as e:
                rt.parse_trace("t", text)
            self.assertIn(want, str(e.exception))

    def test_refused_and_empty_allocations(self):
        class Backend:
            def total(self): return 80 << 30
            def alloc(self, size, stream):
                if size > 100:
                    raise rt.OutOfMemory()
                return 0
            def snapshot(self): return []
            def stats(self): return {}
            def free(self, address): raise AssertionError("nothing was allocated")
        _, ops = rt.parse_trace("t", "alloc 1 101\nfree 1\nalloc 2 0\nfree 2\n")
        self.assertEqual([r[2] for r in rt.Recorder(Backend()).rows(ops)], ["oom", "skip", "ok", "ok"])


if __name__ == "__main__":
    unittest.main()
