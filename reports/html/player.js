// Player: the controls of a memory map. Every figure of class map has its data in a script element; it is read when the figure
// comes into view.

class Player {
  constructor(figure) {
    this.figure = figure;
    const data = JSON.parse(document.getElementById(figure.dataset.map).textContent);
    this.group = data.group;
    this.refusals = data.refusals; // per allocator: operation -> lines of text
    this.texts = data.group.texts.split("\n");
    this.find = selector => figure.querySelector(selector);
    this.slider = this.find("input[type=range]");
    this.panels = [...figure.querySelectorAll(".panel")].map((element, i) => ({
      element,
      memory: new Memory(data.group.recordings[i]),
      drawing: new Drawing(element.querySelector("canvas")),
      cursor: element.querySelector(".cursor"),
      verdict: element.querySelector(".outcome"),
      figures: element.querySelector(".figures"),
      unit: data.group.recordings[i].unit,
    }));
    this.events = [...new Set(this.refusals.flatMap(r => Object.keys(r).map(Number)))].sort((a, b) => a - b)
      .filter(op => op >= this.group.from && op < this.group.from + this.group.ops);
    this.slider.max = this.group.ops;
    this.listen();
    this.go(data.start - this.group.from + 1);
    figure.dataset.ready = "true";
  }

  listen() {
    const on = (selector, act) => { const e = this.find(selector); if (e) e.addEventListener("click", act); };
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    on("[data-do=first]", () => this.go(0));
    on("[data-do=back]", () => this.go(this.position - 1));
    on("[data-do=on]", () => this.go(this.position + 1));
    on("[data-do=last]", () => this.go(this.group.ops));
    on("[data-do=refusal]", () => this.nextRefusal(1));
    on("[data-do=play]", () => this.play());
    this.figure.addEventListener("keydown", event => this.key(event));
    for (const p of this.panels) {
      const canvas = p.drawing.canvas;
      canvas.addEventListener("mousemove", event => this.hover(p, event));
      canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
      canvas.addEventListener("click", event => { p.drawing.magnify(event.shiftKey ? -1 : 1, event.offsetX, event.offsetY); this.zoomed(p); });
      p.element.querySelector("[data-do=all]").addEventListener("click", () => { p.drawing.magnify(0); this.zoomed(p); });
    }
    new ResizeObserver(() => this.redraw()).observe(this.figure);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    addEventListener("beforeprint", () => this.redraw());
  }

  // key steps from anywhere in the figure, as the slider does by itself.
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(10, Math.round(this.group.ops / 20));
    const moves = {
      ArrowLeft: () => this.go(this.position - 1), ArrowRight: () => this.go(this.position + 1),
      ArrowDown: () => this.go(this.position - 1), ArrowUp: () => this.go(this.position + 1),
      PageDown: () => this.go(this.position - page), PageUp: () => this.go(this.position + page),
      Home: () => this.go(0), End: () => this.go(this.group.ops),
      n: () => this.nextRefusal(1), p: () => this.nextRefusal(-1),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }

  nextRefusal(direction) {
    const op = this.group.from + this.position - 1;
    const list = direction > 0 ? this.events.filter(e => e > op) : this.events.filter(e => e < op).reverse();
    const target = list[0] ?? (direction > 0 ? this.events[0] : this.events[this.events.length - 1]);
    if (target !== undefined) this.go(target - this.group.from + 1);
  }

  play() {
    const button = this.find("[data-do=play]");
    const stop = () => { cancelAnimationFrame(this.playing); this.playing = 0; button.textContent = "play"; };
    if (this.playing) { stop(); return; }
    if (this.position >= this.group.ops) this.go(0);
    button.textContent = "pause";
    const step = Math.max(1, Math.round(this.group.ops / 600));
    let last = 0;
    const frame = now => {
      if (now - last >= 40) { last = now; this.go(this.position + step); }
      if (this.position >= this.group.ops) { stop(); return; }
      this.playing = requestAnimationFrame(frame);
    };
    this.playing = requestAnimationFrame(frame);
  }

  // go shows a position and notes how long that took.
  go(position) {
    const start = performance.now();
    this.position = Math.max(0, Math.min(Math.round(position), this.group.ops));
    const op = this.group.from + this.position - 1;
    this.slider.value = this.position;
    const text = this.position === 0 ? (op < 0 ? "before the first operation" : `after operation ${count(op)}`) :
      `operation ${count(op)} of ${count(this.group.of)}: ${this.operation(op)}`;
    this.find(".operation").textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.panels.forEach((p, i) => this.panel(p, i, op));
    this.milliseconds = performance.now() - start;
  }

  panel(p, i, op) {
    p.memory.seek(this.position);
    p.layout = p.memory.layout();
    const refused = p.memory.outcome === 1 && this.position > 0 && this.position <= p.memory.last;
    p.drawing.show(p.layout, p.unit, refused, stretch => this.name(stretch));
    const t = p.layout.totals, size = n => bytes(n * p.unit);
    let words = ["served", "refused", "skipped: the id it names was refused before", "failed"][p.memory.outcome];
    if (!this.text(op).startsWith("alloc") && p.memory.outcome === 0) words = "done";
    if (this.position === 0) words = "";
    if (this.position > p.memory.last) words = p.memory.recording.end || "not recorded";
    const lines = refused ? this.refusals[i][op] || [] : [];
    p.verdict.replaceChildren(...[words, ...lines].map((line, n) => {
      const e = document.createElement(n ? "span" : "strong");
      e.textContent = line;
      return e;
    }));
    p.verdict.classList.toggle("refused", refused);
    p.figures.replaceChildren(...[["live", t.live], ["pinned", t.pinned], ["idle cache", t.idle], ["pending", t.pending], ["free at the device", t.free]]
      .filter(([name, n]) => n > 0 || name !== "pending").map(([name, n]) => {
        const e = document.createElement("span");
        e.textContent = `${name} ${size(n)}`;
        return e;
      }));
    p.element.dataset.pins = p.layout.pins.length;
    p.element.dataset.state = [p.memory.position, t.live, t.reserved, t.pinned, t.idle, t.free].map((n, k) => k ? n * p.unit : n).join(" ");
    if (p.cursor) {
      const svg = p.cursor.ownerSVGElement, { x0, x1, from, to } = svg.dataset;
      const x = Number(x0) + (Number(x1) - Number(x0)) * Math.max(0, Math.min(1, (op - from) / Math.max(1, to - from)));
      p.cursor.setAttribute("transform", `translate(${x.toFixed(1)} 0)`);
      p.cursor.setAttribute("visibility", "visible");
    }
  }

  redraw() { for (const p of this.panels) p.drawing.draw(); }

  zoomed(p) {
    const [from, to] = p.drawing.range, all = p.drawing.zoom.to === 0;
    p.element.querySelector("[data-do=all]").hidden = all;
    p.element.querySelector(".range").textContent = all ? "" : `${bytes((to - from) * p.unit)} from ${bytes(from * p.unit)} on`;
  }

  // text is an operation as the trace has it, operation the same with its size for people.
  text(op) { return this.texts[op - this.group.from] ?? (this.group.earlier || {})[op] ?? ""; }

  operation(op) {
    const words = this.text(op).split(" "), at = { alloc: 2, foreign: 1 }[words[0]], n = Number(words[at]);
    if (n >= 1024) words[at] = `${bytes(n)} (${count(n)} B)`;
    return words.join(" ");
  }

  id(born) { return born < 0 ? "" : (this.text(born).split(" ")[1] ?? ""); }

  name(stretch) { return this.id(stretch.block.born); }

  hover(p, event) {
    const list = p.drawing.under(event.offsetX, event.offsetY);
    if (!list.length) { tip.hidden = true; return; }
    const lines = list.length === 1 ? this.describe(p, list[0]) : this.summary(p, list);
    tip.replaceChildren(...lines.map(line => { const e = document.createElement("div"); e.textContent = line; return e; }));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  }

  describe(p, { kind, size, block, segment }) {
    const words = {
      live: "live", pin: "live, and pins free memory in its segment or page", pinned: "free, but pinned by live blocks",
      idle: "free, a release would return it", pending: "freed, another stream still uses it",
      others: "held by others on the device", device: "free at the device",
    };
    const lines = [`${bytes(size * p.unit)} ${words[kind]}`];
    if (!block) return lines;
    if (block.born >= 0) lines.push(`operation ${count(block.born)}: ${this.operation(block.born)}`);
    const s = p.memory.segments[segment];
    if (block.size !== size) lines.push(`part of a block of ${bytes(block.size * p.unit)}`);
    lines.push(`at +${bytes(block.offset * p.unit)} of a segment of ${bytes(s.size * p.unit)} at ${s.at}`);
    lines.push([s.small ? "small pool" : "large pool", s.pool ? `private pool ${s.pool}` : "", `stream ${s.stream || 0}`, s.page ? `expandable, pages of ${bytes(s.page * p.unit)}` : ""].filter(Boolean).join(", "));
    return lines;
  }

  summary(p, list) {
    const sums = new Map();
    for (const s of list) {
      const v = sums.get(s.kind) || { n: 0, size: 0 };
      v.n++; v.size += s.size;
      sums.set(s.kind, v);
    }
    const words = { live: "live", pin: "live, pinning", pinned: "free, pinned", idle: "free", pending: "pending", others: "of others", device: "free at the device" };
    return [`${count(list.length)} blocks within a pixel (click to magnify)`,
      ...[...sums].map(([kind, v]) => `${count(v.n)} ${words[kind]}, ${bytes(v.size * p.unit)}`)];
  }
}

function count(n) { return n.toLocaleString("en-US"); }

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.dataset.over = "";
document.body.append(tip);

// Figures are made when they come near the window, or at once for print.
const players = new Map();
const figures = [...document.querySelectorAll("figure.map")];
const make = figure => { if (!players.has(figure)) players.set(figure, new Player(figure)); return players.get(figure); };
const observer = new IntersectionObserver(entries => {
  for (const e of entries) if (e.isIntersecting) { observer.unobserve(e.target); make(e.target); }
}, { rootMargin: "400px" });
for (const f of figures) observer.observe(f);
addEventListener("beforeprint", () => figures.forEach(make));
window.shatter = { player: i => make(figures[i]), figures };

for (const button of document.querySelectorAll("button[data-show]")) {
  button.addEventListener("click", () => {
    const figure = figures.find(f => f.dataset.map === button.dataset.show), player = make(figure);
    player.go(Number(button.dataset.op) - player.group.from + 1);
    figure.scrollIntoView({ block: "center" });
    figure.focus({ preventScroll: true });
  });
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code); // without a clipboard the reader copies it
      button.textContent = "selected";
    }
  });
}
