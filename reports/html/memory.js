// Memory: what an allocator held after each operation, made from a recording (see reports/recording).
//
// A position counts operations: 0 is the state before the window's first one, n the state after n of them. To go anywhere fast,
// the whole recording is played once and every so many positions the state is kept (a key frame); a position is then reached
// from the key frame below it. Blocks are never changed in place, so key frames share them.

const UNMAPPED = 0, FREE = 1, PENDING = 2, LIVE = 3; // allocators.State
const KEY_EVERY = 256;

class Memory {
  constructor(recording) {
    this.recording = recording;
    this.steps = recording.steps;
    this.segments = recording.segments.map(s => ({ ...s, addr: Number(s.at) }));
    this.places = [];          // of each step in steps
    this.keys = [];            // every KEY_EVERY positions: the segments' blocks, what is free
    this.held = new Map();     // segment -> blocks by offset, each {offset, size, state, born}
    this.shared = new Set();   // segments whose list a key frame has too
    for (let at = 0; at < this.steps.length;) {
      this.places.push(at);
      at = this.apply(at);
      if ((this.places.length - 1) % KEY_EVERY === 0) this.keep();
    }
    this.position = this.places.length - 1;
  }

  get last() { return this.places.length - 1; }

  keep() {
    this.shared = new Set(this.held.keys());
    this.keys.push({ held: new Map(this.held), free: this.free, outcome: this.outcome });
  }

  // seek goes to a position; one behind the end of the recording is its end.
  seek(position) {
    position = Math.max(0, Math.min(position, this.last));
    const key = Math.floor(position / KEY_EVERY);
    if (position < this.position || Math.floor(this.position / KEY_EVERY) !== key) {
      const k = this.keys[key];
      this.held = new Map(k.held);
      this.shared = new Set(k.held.keys());
      this.free = k.free;
      this.outcome = k.outcome;
      this.position = key * KEY_EVERY;
    }
    while (this.position < position) this.apply(this.places[++this.position]);
  }

  // apply makes the changes of the step at a place and returns where the next one is.
  apply(at) {
    const s = this.steps;
    this.outcome = s[at++];
    this.free = s[at++];
    for (let n = s[at++]; n > 0; n--) {
      this.held.delete(s[at]);
      this.shared.delete(s[at++]);
    }
    for (let n = s[at++]; n > 0; n--, at += 5) {
      const segment = s[at], block = { offset: s[at + 1], size: s[at + 2], state: s[at + 3], born: s[at + 4] - 1 };
      let blocks = this.held.get(segment);
      if (!blocks || this.shared.has(segment)) {
        blocks = blocks ? blocks.slice() : [];
        this.held.set(segment, blocks);
        this.shared.delete(segment);
      }
      const from = firstBehind(blocks, block.offset), end = block.offset + block.size;
      let to = from;
      while (to < blocks.length && blocks[to].offset < end) to++;
      blocks.splice(from, to - from, block);
    }
    return at;
  }

  // layout lists all memory of the device in order: the segments by address, what others hold, what is free at the device. Each
  // stretch has a kind, and totals says how many bytes are of which. Units throughout.
  layout() {
    const capacity = this.recording.capacity / this.recording.unit;
    const out = { stretches: [], pins: [], totals: { live: 0, pinned: 0, idle: 0, pending: 0, free: this.free, reserved: 0, segments: 0 } };
    const order = [...this.held.keys()].sort((a, b) => this.segments[a].addr - this.segments[b].addr);
    let at = 0;
    const add = (kind, size, segment, block, edge) => {
      if (size <= 0) return;
      out.stretches.push({ kind, at, size, segment, block, edge });
      at += size;
    };
    for (const index of order) {
      const segment = this.segments[index], blocks = this.held.get(index);
      const parts = segment.page ? byPage(segment, blocks) : whole(blocks);
      let edge = true;
      out.totals.segments++;
      for (const p of parts) {
        if (p.kind === "unmapped") { edge = true; continue; }
        add(p.kind, p.size, index, p.block, edge);
        edge = false;
        out.totals.reserved += p.size;
        if (p.block.state === LIVE) {
          out.totals.live += p.size;
          if (p.kind === "pin") out.pins.push({ segment: index, block: p.block });
        } else {
          if (p.block.state === PENDING) out.totals.pending += p.size;
          out.totals[p.kept ? "pinned" : "idle"] += p.size;
        }
      }
    }
    add("others", Math.max(0, capacity - at - this.free), -1, null, true);
    add("device", this.free, -1, null, true);
    out.size = Math.max(at, capacity);
    return out;
  }
}

// firstBehind is the index of the first block that ends behind an offset.
function firstBehind(blocks, offset) {
  let low = 0, high = blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (blocks[middle].offset + blocks[middle].size > offset) high = middle; else low = middle + 1;
  }
  return low;
}

// whole says what the blocks of a segment are that is returned as a whole: with a live block in it all the rest is pinned.
function whole(blocks) {
  let live = 0, idle = 0;
  for (const b of blocks) b.state === LIVE ? live++ : idle++;
  return blocks.map(block => {
    const { size, state } = block;
    if (state === LIVE) return { kind: idle ? "pin" : "live", size, block };
    return { kind: state === PENDING ? "pending" : live ? "pinned" : "idle", size, block, kept: live > 0 };
  });
}

// byPage is whole for a segment that is returned page by page: a page is pinned if a live block reaches into it. Pages in the
// middle of a block are all its own, so only the pages at the ends of blocks need to be looked at.
function byPage(segment, blocks) {
  const page = segment.page, livePages = new Set(), idlePages = new Set();
  for (const b of blocks) {
    const pages = b.state === LIVE ? livePages : b.state === UNMAPPED ? null : idlePages;
    if (pages) pages.add(Math.floor(b.offset / page)).add(Math.floor((b.offset + b.size - 1) / page));
  }
  const out = [];
  for (const block of blocks) {
    const { offset, size, state } = block, end = offset + size;
    const first = Math.floor(offset / page), last = Math.floor((end - 1) / page);
    if (state === UNMAPPED) { out.push({ kind: "unmapped", size, block }); continue; }
    if (state === LIVE) { out.push({ kind: idlePages.has(first) || idlePages.has(last) ? "pin" : "live", size, block }); continue; }
    const part = (from, to, kept) => {
      if (to > from) out.push({ kind: state === PENDING ? "pending" : kept ? "pinned" : "idle", size: to - from, block, kept });
    };
    if (first === last) { part(offset, end, livePages.has(first)); continue; }
    // The first and the last page may be shared with live blocks, those between are free as a whole.
    const inner = livePages.has(first) ? (first + 1) * page : offset;
    const outer = livePages.has(last) ? last * page : end;
    part(offset, inner, true);
    part(inner, outer, false);
    part(outer, end, true);
  }
  return out;
}
