#!/usr/bin/env python3
"""Records what the caching allocator of an installed PyTorch decides on a trace.

    record_torch.py TRACE [--out DIR] [--conf SETTINGS] [--name NAME]

Replays a trace (text format v1, plain or .gz) without `record` and `foreign` operations through
torch.cuda.caching_allocator_alloc and caching_allocator_delete, and writes a folder that `shatter conform DIR` reads:
DIR/index.tsv, DIR/traces/NAME.trace.gz and DIR/logs/NAME__torch.tsv.gz. After every operation the allocator's own
statistics and snapshot are read. What PyTorch does not tell is `?` in the log: the device calls of an operation and the
device's free memory. A last column has the address of each block, because allocators break ties by address.

Settings come from --conf, else from the trace's header `conf`; the fraction from the header `fraction`: without one the
fraction call is not made, which is not the same as 1.0. It needs torch with CUDA, and nothing else beside Python.
Sizes are bytes.

Exit: 0 recorded, 2 the trace cannot be recorded, 3 torch or its GPU is missing.
"""
import argparse
import gzip
import os
import re
import sys

COLUMNS = ["op", "kind", "outcome", "segment", "offset", "block_size", "allocated", "active", "reserved", "requested",
           "inactive_split", "device_free", "segments", "alloc_retries", "ooms", "driver_events", "address"]
STATS = ["allocated_bytes.all.current", "active_bytes.all.current", "reserved_bytes.all.current",
         "requested_bytes.all.current", "inactive_split_bytes.all.current"]
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
GRANULE = 2 << 20  # what CUDA maps memory in


class TraceError(Exception):
    """The trace cannot be read, or has an operation that cannot be recorded."""


class OutOfMemory(Exception):
    """The allocator refused a request."""


def parse_size(text):
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(|KiB|MiB|GiB|TiB)", text)
    if not m:
        raise TraceError("%r is not a size" % text)
    return int(float(m.group(1)) * UNITS[m.group(2)]) if "." in m.group(1) else int(m.group(1)) * UNITS[m.group(2)]


def parse_trace(name, text):
    """Returns the header (a dict, the first of repeated keys) and the operations as tuples (kind, ...)."""
    header, ops, live = {}, [], set()
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.match(r"\s*#\s*([A-Za-z_][\w-]*):\s*(.*)", line)
        if comment and not ops:
            header.setdefault(comment.group(1), comment.group(2).strip())
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        try:
            ops.append(parse_op(words, live))
        except (TraceError, ValueError, IndexError, KeyError) as e:
            raise TraceError("%s:%d: %s: %s" % (name, number, line.strip(), e)) from None
    return header, ops


def parse_op(words, live):
    kind, args = words[0], words[1:]
    attributes = dict(w.split("=", 1) for w in args if "=" in w and kind in ("alloc", "sync"))
    stream = int(attributes["stream"]) if "stream" in attributes else None
    if kind == "alloc":
        if int(args[0]) in live:
            raise TraceError("the id is live")
        live.add(int(args[0]))
        return kind, int(args[0]), parse_size(args[1]), stream or 0
    if kind == "free":
        if int(args[0]) not in live:
            raise TraceError("the id is not live")
        live.remove(int(args[0]))
        return kind, int(args[0])
    if kind == "sync":
        return kind, stream
    if kind == "empty_cache":
        return (kind,)
    if kind == "conf":
        return kind, " ".join(args)
    if kind == "fraction":
        return kind, float(args[0])
    if kind in ("record", "foreign"):
        raise TraceError("torch.cuda.caching_allocator_alloc has no way to %s; take a trace without it" % kind)
    raise TraceError("unknown operation")


class Regions:
    """The regions that the allocator holds, numbered by order of appearance, as its snapshots show them.

    A classic segment is a region. Of an expandable one a snapshot shows the runs that are mapped; they belong to the
    address range of the first run seen, which starts the reservation of 9/8 of the device. Of regions that appear in one
    operation the lower address counts first, and one that comes and goes within an operation is not seen.
    """

    def __init__(self, total):
        self.reservation = total + total // 8
        self.known = []  # [base, end, ordinal, key]; key is None for classic segments
        self.made = 0

    def update(self, snapshot):
        seen = []
        for s in sorted(snapshot, key=lambda s: s["address"]):
            key = (s["stream"], s["segment_type"]) if s.get("is_expandable") else None
            region = self.find(s["address"], key)
            if region is None:
                size = self.reservation if key else s["total_size"]
                region = [s["address"], s["address"] + size, self.made, key]
                self.made += 1
                self.known.append(region)
            if region not in seen:
                seen.append(region)
        self.known = seen

    def find(self, address, key):
        for r in self.known:
            if r[0] <= address < r[1] and r[3] == key:
                return r
        return None

    def holding(self, address):
        for r in self.known:
            if r[0] <= address < r[1]:
                return r
        return None


def block_size(snapshot, address):
    for s in snapshot:
        at = s["address"]
        for b in s["blocks"]:
            at = b.get("address", at)
            if at == address:
                return b["size"]
            at += b["size"]
    return None


class Recorder:
    """Replays operations on a backend and makes the rows of a log."""

    def __init__(self, backend):
        self.backend = backend
        self.regions = Regions(backend.total())
        self.blocks = {}  # id -> (address, [segment, offset, block_size]); address None if refused
        self.ooms = 0

    def rows(self, ops):
        for index, op in enumerate(ops):
            yield self.row(index, op)

    def row(self, index, op):
        kind, outcome, place, address = op[0], "ok", ["-"] * 3, "-"
        try:
            if kind == "alloc":
                place, address = self.alloc(op)
            elif kind == "free":
                outcome, place, address = self.free(op[1])
            elif kind == "sync":
                self.backend.sync(op[1])
            elif kind == "empty_cache":
                self.backend.empty_cache()
            elif kind == "conf":
                self.backend.configure(op[1])
            elif kind == "fraction":
                self.backend.set_fraction(op[1])
        except OutOfMemory:
            outcome = "oom"
            self.ooms += 1
            self.blocks[op[1]] = (None, place)
        self.regions.update(self.backend.snapshot())
        stats = self.backend.stats()
        return ([index, kind, outcome] + place + [stats.get(k, "?") for k in STATS] +
                ["?", stats.get("segment.all.current", "?"), stats.get("num_alloc_retries", "?"),
                 stats.get("num_ooms", "?"), "?", address])

    def alloc(self, op):
        _, name, size, stream = op
        address = self.backend.alloc(size, stream)
        place, shown = ["-"] * 3, "-"
        if size > 0:
            snapshot = self.backend.snapshot()
            self.regions.update(snapshot)
            region = self.regions.holding(address)
            place = ["?"] * 3 if region is None else [region[2], address - region[0], block_size(snapshot, address) or "?"]
            shown = address
        self.blocks[name] = (address if size > 0 else 0, place)
        return place, shown

    def free(self, name):
        address, place = self.blocks.pop(name)
        if address is None:
            return "skip", ["-"] * 3, "-"
        if address == 0:
            return "ok", ["-"] * 3, "-"
        self.backend.free(address)
        return "ok", place, address


class Torch:
    """The allocator of the PyTorch that is installed, on the current device."""

    def __init__(self, torch):
        self.torch = torch
        self.streams = {0: torch.cuda.default_stream()}
        self.oom = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError
        torch.cuda.empty_cache()

    def total(self):
        return self.torch.cuda.mem_get_info()[1] // GRANULE * GRANULE

    def stream(self, n):
        if n not in self.streams:
            self.streams[n] = self.torch.cuda.Stream()
        return self.streams[n]

    def alloc(self, size, stream):
        try:
            return self.torch.cuda.caching_allocator_alloc(size, stream=self.stream(stream))
        except self.oom:
            raise OutOfMemory() from None

    def free(self, address):
        self.torch.cuda.caching_allocator_delete(address)

    def sync(self, stream):
        if stream is None:
            self.torch.cuda.synchronize()
        else:
            self.stream(stream).synchronize()

    def empty_cache(self):
        self.torch.cuda.empty_cache()

    def configure(self, conf):
        self.torch.cuda.memory._set_allocator_settings(conf)

    def set_fraction(self, fraction):
        self.torch.cuda.set_per_process_memory_fraction(fraction)

    def stats(self):
        return self.torch.cuda.memory_stats()

    def snapshot(self):
        return self.torch.cuda.memory_snapshot()


def write_folder(out, name, text, conf, fraction, recorder, ops):
    """Writes the folder that `shatter conform` reads, and returns the number of refusals."""
    for sub in ("traces", "logs"):
        os.makedirs(os.path.join(out, sub), exist_ok=True)
    # Without a time of its own a gzip file is the same in every run.
    with gzip.GzipFile(os.path.join(out, "traces", name + ".trace.gz"), "wb", mtime=0) as f:
        f.write("".join(l + "\n" for l in text.splitlines() if not l.lstrip().startswith("#")).encode())
    last = None
    with gzip.GzipFile(os.path.join(out, "logs", name + "__torch.tsv.gz"), "wb", mtime=0) as f:
        f.write(("\t".join(COLUMNS) + "\n").encode())
        for last in recorder.rows(ops):
            f.write(("\t".join(map(str, last)) + "\n").encode())
    index = os.path.join(out, "index.tsv")
    lines = ["trace\tconfig_name\tconfig\tcapacity\tfraction\tops\tooms\tfinal_reserved\terrors\talloc_retries"]
    if os.path.exists(index):
        with open(index) as f:
            lines = [l for l in f.read().splitlines() if not l.startswith(name + "\ttorch\t")]
    reserved, retries = (last[8], last[13]) if last else (0, 0)
    lines.append("\t".join(map(str, [name, "torch", conf or "-", recorder.backend.total(),
                                     "-" if fraction is None else fraction, len(ops), recorder.ooms, reserved, 0, retries])))
    with open(index, "w") as f:
        f.write("\n".join(lines) + "\n")
    return recorder.ooms


def read_text(path):
    with (gzip.open(path, "rt") if path.endswith(".gz") else open(path)) as f:
        return f.read()


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("trace")
    p.add_argument("--out", default="torch-log")
    p.add_argument("--conf", help="settings string; default: the header's")
    p.add_argument("--name", help="name of the log; default: the file's")
    args = p.parse_args(argv)
    try:
        text = read_text(args.trace)
        header, ops = parse_trace(args.trace, text)
    except (OSError, TraceError) as e:
        print("record_torch: %s" % e, file=sys.stderr)
        return 2
    conf = args.conf if args.conf is not None else header.get("conf", "")
    fraction = float(header["fraction"]) if "fraction" in header else None
    # PyTorch reads the settings when it first allocates.
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = conf
    try:
        import torch
        if not torch.cuda.is_available():
            raise ImportError("torch %s sees no GPU" % torch.__version__)
    except ImportError as e:
        print("record_torch: %s\ninstall a torch with CUDA, on a machine with a GPU" % e, file=sys.stderr)
        return 3
    backend = Torch(torch)
    if fraction is not None:
        backend.set_fraction(fraction)
    name = args.name or re.sub(r"\.trace(\.gz)?$", "", os.path.basename(args.trace))
    ooms = write_folder(args.out, name, text, conf, fraction, Recorder(backend), ops)
    print("%s: %d operations, %d refused, torch %s, %s; now: shatter conform %s"
          % (name, len(ops), ooms, torch.__version__, conf or "default settings", args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
