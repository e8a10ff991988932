// What a reader could not read, as a list of sentences: text that is cut, that sticks out of the window or of its drawing,
// or that lies on other text, on a drawing or on a control.
(() => {
  const faults = [];
  const seen = e => e.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });
  const short = s => JSON.stringify(s.trim().replace(/\s+/g, " ").slice(0, 60));
  const at = r => `${Math.round(r.left)},${Math.round(r.top)} ${Math.round(r.width)}x${Math.round(r.height)}`;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    faults.push(`the page is ${root.scrollWidth} pixels wide in a window of ${root.clientWidth}`);
  }

  // Every line of every text, with what it belongs to.
  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walker.nextNode(); n; n = walker.nextNode()) {
    const owner = n.parentElement;
    if (!n.data.trim() || !owner || !seen(owner) || owner.closest("script, style, noscript, title, option")) continue;
    const inDrawing = owner.closest("svg");
    const range = document.createRange();
    range.selectNodeContents(n);
    const rects = inDrawing ? [owner.getBoundingClientRect()] : [...range.getClientRects()];
    for (const r of rects) {
      if (r.width < 1 || r.height < 1) continue;
      // The box of a line is higher than its letters: what counts is the middle of it.
      const pad = r.height * 0.2;
      lines.push({ node: n, owner, left: r.left + 0.5, right: r.right - 0.5, top: r.top + pad, bottom: r.bottom - pad, rect: r });
    }
  }

  for (const l of lines) {
    const text = `${short(l.node.data)} (${at(l.rect)})`;
    let scrolls = false;
    for (let e = l.owner; e && e !== document.body; e = e.parentElement) {
      const style = getComputedStyle(e), box = e.getBoundingClientRect();
      const svg = e.tagName.toLowerCase() === "svg";
      if (style.overflowX === "auto" || style.overflowX === "scroll") { scrolls = true; break; }
      if (svg || style.overflowX === "hidden" || style.overflowX === "clip") {
        if (l.left < box.left - 1 || l.right > box.right + 1 || l.top < box.top - 1 || l.bottom > box.bottom + 1) {
          faults.push(`${text} is cut by <${e.tagName.toLowerCase()} class="${e.getAttribute("class") || ""}"> (${at(box)})`);
        }
      }
    }
    if (!scrolls && (l.left < 0 || l.right > root.clientWidth)) faults.push(`${text} sticks out of the window`);
  }

  // Boxes that text must not lie on unless it is theirs.
  const boxes = [...document.querySelectorAll("canvas, svg, button, input, select, img, summary")].filter(seen)
    .map(e => ({ e, r: e.getBoundingClientRect() })).filter(b => b.r.width > 1 && b.r.height > 1);
  for (const b of boxes) {
    for (const l of lines) {
      if (b.e.contains(l.owner) || l.owner.closest("[data-over]")) continue;
      if (l.left < b.r.right - 1 && l.right > b.r.left + 1 && l.top < b.r.bottom - 1 && l.bottom > b.r.top + 1) {
        faults.push(`${short(l.node.data)} (${at(l.rect)}) lies on <${b.e.tagName.toLowerCase()}> (${at(b.r)})`);
      }
    }
  }

  // Text on text.
  lines.sort((a, b) => a.top - b.top);
  for (let i = 0; i < lines.length; i++) {
    for (let k = i + 1; k < lines.length && lines[k].top < lines[i].bottom; k++) {
      const a = lines[i], b = lines[k];
      if (a.node === b.node || a.owner.closest("[data-over]") !== b.owner.closest("[data-over]")) continue;
      if (a.left < b.right && b.left < a.right) {
        faults.push(`${short(a.node.data)} (${at(a.rect)}) and ${short(b.node.data)} (${at(b.rect)}) lie on each other`);
      }
    }
  }
  return faults.slice(0, 40);
})()
