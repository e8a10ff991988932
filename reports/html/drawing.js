// Drawing: a memory map on a canvas. All memory of the device lies on rows, from left to right and from top to bottom; what is
// narrower than a pixel is added up, and a column then shows its kinds on one another by their share.

const KINDS = ["live", "pin", "pinned", "idle", "pending", "others", "device"];
const ROWS = 14, ROW = 17, GAP = 5, GUTTER = 64;

// colours reads the kinds' colours from the style sheet, once for each theme.
let read = null;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { read = null; });
for (const event of ["beforeprint", "afterprint"]) addEventListener(event, () => { read = null; });

function colours() {
  if (read) return read;
  const style = getComputedStyle(document.documentElement);
  const rgb = name => {
    const hex = style.getPropertyValue("--" + name).trim().slice(1);
    return [0, 2, 4].map(i => parseInt(hex.slice(i, i + 2), 16));
  };
  const out = { paper: rgb("paper"), ink: style.getPropertyValue("--ink"), soft: style.getPropertyValue("--soft") };
  for (const k of KINDS) out[k] = rgb(k);
  return read = out;
}

class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.zoom = { from: 0, to: 0 }; // units; from = to shows everything
  }

  // show draws a layout. unit is bytes; alert highlights what pins.
  show(layout, unit, alert, label) {
    Object.assign(this, { layout, unit, alert, label });
    this.draw();
  }

  get range() {
    const { from, to } = this.zoom;
    return to > from ? [from, to] : [0, this.layout.size];
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth;
    if (!width || !this.layout) return;
    this.width = width;
    const height = ROWS * (ROW + GAP);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d"), palette = colours();
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const columns = Math.max(1, Math.floor((width - GUTTER) * ratio)), rowHeight = Math.round(ROW * ratio);
    const shares = this.columns(columns * ROWS);
    this.paint(context, palette, shares, columns, rowHeight, ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.scale(context, palette);
    this.marks(context, palette);
  }

  // columns adds up, for each of n columns, the share of each kind.
  columns(n) {
    const [from, to] = this.range, per = (to - from) / n, k = KINDS.length;
    const shares = new Float32Array(n * k), edges = new Uint8Array(n);
    for (const s of this.layout.stretches) {
      const a = (s.at - from) / per, b = (s.at + s.size - from) / per;
      if (b <= 0 || a >= n) continue;
      const kind = KINDS.indexOf(s.kind), first = Math.max(0, Math.floor(a)), last = Math.min(n - 1, Math.ceil(b) - 1);
      if (a >= 0 && b - a > 5 && s.at > 0) edges[first] = s.edge ? 1 : 2; // a segment, a block
      for (let c = first; c <= last; c++) shares[c * k + kind] += Math.min(b, c + 1) - Math.max(a, c);
    }
    return { shares, edges };
  }

  // paint fills the rows. Pinned memory is hatched, so that it is seen without colours.
  paint(context, palette, { shares, edges }, columns, rowHeight, ratio) {
    const k = KINDS.length, image = context.createImageData(columns, rowHeight), data = image.data;
    const fill = KINDS.map(kind => this.alert && kind === "live" ? mix(palette.live, palette.paper, 0.45) : palette[kind]);
    const hatch = KINDS.map((kind, i) => kind === "pinned" ? mix(fill[i], [0, 0, 0], 0.28) : kind === "others" ? mix(fill[i], palette.paper, 0.4) : fill[i]);
    const line = fill.map(c => mix(c, palette.paper, 0.45)), gap = fill.map(() => palette.paper);
    const period = Math.max(4, Math.round(6 * ratio));
    for (let row = 0; row < ROWS; row++) {
      for (let x = 0; x < columns; x++) {
        const column = row * columns + x, edge = edges[column];
        const plain = edge === 1 ? gap : edge === 2 ? line : fill, dark = edge ? plain : hatch;
        let y = 0, reach = 0;
        for (let kind = 0; kind < k && y < rowHeight; kind++) {
          const part = shares[column * k + kind];
          if (part === 0 && kind < k - 1) continue;
          reach += part;
          const end = kind === k - 1 ? rowHeight : Math.min(rowHeight, Math.round(reach * rowHeight));
          const a = plain[kind], b = dark[kind];
          for (; y < end; y++) {
            const c = (x + y) % period < ratio ? b : a, i = (y * columns + x) * 4;
            data[i] = c[0]; data[i + 1] = c[1]; data[i + 2] = c[2]; data[i + 3] = 255;
          }
        }
      }
      context.putImageData(image, Math.round(GUTTER * ratio), Math.round(row * (ROW + GAP) * ratio));
    }
  }

  // scale writes where each row begins.
  scale(context, palette) {
    context.font = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
    context.fillStyle = palette.soft;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const [from, to] = this.range;
    for (let row = 0; row < ROWS; row++) {
      context.fillText(bytes((from + (to - from) * row / ROWS) * this.unit, "short"), GUTTER - 6, row * (ROW + GAP) + ROW / 2);
    }
  }

  // marks writes names into blocks that have room for them, and frames what pins.
  marks(context, palette) {
    context.textAlign = "center";
    const least = 4 * (this.range[1] - this.range[0]) / ROWS / (this.width - GUTTER); // units in 4 pixels
    for (const s of this.layout.stretches) {
      if (s.size < least) continue;
      const pieces = this.pieces(s.at, s.size);
      const name = s.block && s.block.state === LIVE ? this.label(s) : "";
      for (const [x, y, width] of pieces) {
        if (this.alert && s.kind === "pin" && width >= 4) {
          context.strokeStyle = palette.ink;
          context.lineWidth = 1.5;
          context.strokeRect(x + 1.25, y + 0.75, width - 2, ROW - 1.5);
        }
        if (name && width > 24 && context.measureText(name).width < width - 10) {
          const ground = this.alert && s.kind === "live" ? mix(palette.live, palette.paper, 0.45) : palette[s.kind];
          context.fillStyle = ground[0] * 0.3 + ground[1] * 0.59 + ground[2] * 0.11 > 140 ? "#10151b" : "#ffffff";
          context.fillText(name, x + width / 2, y + ROW / 2 + 0.5);
          break;
        }
      }
    }
  }

  // pieces are the rectangles of a stretch: x, y, width in CSS pixels.
  pieces(at, size) {
    const [from, to] = this.range, row = (to - from) / ROWS, across = this.width - GUTTER, out = [];
    const start = Math.max(at, from), end = Math.min(at + size, to);
    for (let a = start; a < end;) {
      const r = Math.min(ROWS - 1, Math.floor((a - from) / row)), b = r === ROWS - 1 ? end : Math.min(end, from + (r + 1) * row);
      if (b <= a) break;
      out.push([GUTTER + (a - from - r * row) / row * across, r * (ROW + GAP), (b - a) / row * across]);
      a = b;
    }
    return out;
  }

  // place is where in memory a point of the canvas lies, null beside the rows.
  place(x, y) {
    const [from, to] = this.range, row = Math.floor(y / (ROW + GAP)), across = this.width - GUTTER;
    if (x < GUTTER || x >= this.width || row < 0 || row >= ROWS || y - row * (ROW + GAP) > ROW) return null;
    return from + ((to - from) / ROWS) * (row + (x - GUTTER) / across);
  }

  // under lists the stretches in the pixel at a point.
  under(x, y) {
    const at = this.place(x, y);
    if (at === null) return [];
    const [from, to] = this.range, half = (to - from) / ROWS / (this.width - GUTTER) / 2, list = this.layout.stretches;
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].at + list[middle].size > at - half) high = middle; else low = middle + 1;
    }
    const out = [];
    for (; low < list.length && list[low].at < at + half; low++) out.push(list[low]);
    // A wide block is meant even if the pixel touches its neighbour.
    const wide = out.find(s => s.at <= at && at < s.at + s.size && s.size > 6 * half);
    return wide ? [wide] : out;
  }

  // magnify shows a quarter of what is shown now, around a point; less than 0 times shows four times as much, 0 everything.
  magnify(direction, x, y) {
    const [from, to] = this.range, size = this.layout.size;
    const at = (x === undefined ? null : this.place(x, y)) ?? (from + to) / 2;
    const width = direction > 0 ? Math.max((to - from) / 4, ROWS * 4096 / this.unit) : direction < 0 ? (to - from) * 4 : size;
    if (width >= size) { this.zoom = { from: 0, to: 0 }; } else {
      const start = Math.min(Math.max(0, at - width / 2), size - width);
      this.zoom = { from: start, to: start + width };
    }
    this.draw();
  }
}

function mix(a, b, share) { return a.map((v, i) => Math.round(v * (1 - share) + b[i] * share)); }

// bytes writes a size for people; short is with three figures at most.
function bytes(n, short) {
  for (const [name, unit] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(n) >= unit) {
      const v = n / unit;
      const digits = Number.isInteger(v) ? 0 : !short ? 2 : v >= 99.95 ? 0 : 1;
      return v.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + " " + name;
    }
  }
  return Math.round(n) + " B";
}
