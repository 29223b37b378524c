"use strict";
// Charts as SVG: lines with bands, rows of dots, histograms, heat maps.

// How wide a chart may be, in a figure that shares its row with others.
function room(columns = 1) {
  const phone = window.innerWidth <= 820;
  const page = Math.min(1120, document.documentElement.clientWidth) - (phone ? 28 : 40);
  const inner = phone ? 22 : 34;
  const fits = columns > 1 && (page - 14 * (columns - 1)) / columns >= 440;
  return Math.max(240, Math.floor((fits ? (page - 14 * (columns - 1)) / columns : page) - inner));
}

function ticks(low, high, wanted = 5) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || power;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}
const range = (values) => {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (low > high) return [0, 1];
  return low === high ? [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2] : [low, high];
};
const padded = ([low, high], share = 0.05) => [low - share * (high - low), high + share * (high - low)];

function scale([low, high], [from, to], log = false) {
  const bend = log ? Math.log : (x) => x;
  return (x) => from + ((bend(x) - bend(low)) / (bend(high) - bend(low))) * (to - from);
}

function canvasOf(width, height, label) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    style: `max-width:${width}px` });
}
const text = (x, y, content, more = {}) => svg("text", { x, y, ...more }, content);

// The frame of a chart with two axes. Returns the picture and its two scales.
function axes({ width, height = 240, x, y, label }) {
  const yTicks = ticks(...y.range, height < 150 ? 2 : 5);
  const widest = Math.max(...yTicks.map((t) => short(t).length));
  const left = 12 + 7 * widest + (y.label ? 16 : 0), right = width - 12;
  const bottom = height - (x.label ? 38 : 20), top = 10;
  const node = canvasOf(width, height, label);
  const sx = scale(x.range, [left, right], x.log), sy = scale(y.range, [bottom, top]);
  for (const t of yTicks) {
    node.append(svg("line", { class: "grid", x1: left, x2: right, y1: sy(t), y2: sy(t) }),
      text(left - 6, sy(t) + 4, short(t), { class: "soft", "text-anchor": "end" }));
  }
  const xTicks = x.ticks || (x.log ? powers(...x.range) : ticks(...x.range, width < 400 ? 4 : 7));
  for (const t of xTicks) {
    node.append(svg("line", { class: "axis", x1: sx(t), x2: sx(t), y1: bottom, y2: bottom + 4 }),
      text(sx(t), bottom + 17, x.name ? x.name(t) : short(t), { class: "soft", "text-anchor": "middle" }));
  }
  node.append(svg("path", { class: "axis", d: `M${left},${top}V${bottom}H${right}` }));
  if (x.label) node.append(text((left + right) / 2, height - 4, x.label, { "text-anchor": "middle" }));
  if (y.label) node.append(svg("text", { transform: `translate(12,${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
  return { node, sx, sy, left, right, top, bottom };
}
function powers(low, high) {
  const found = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10)
    for (const m of [1, 2, 5]) if (m * power >= low && m * power <= high) found.push(m * power);
  return found.length > 8 ? found.filter((t) => Number.isInteger(Math.log10(t))) : found;
}

// Lines with bands; a mark is a vertical line with a name.
function lineChart({ series, marks = [], x, y, dots = false, ...more }) {
  const all = series.flatMap((s) => [...s.points, ...(s.band || []).flatMap(([t, a, b]) => [[t, a], [t, b]])]);
  const frame = axes({ ...more,
    x: { range: range(all.map((p) => p[0])), ...x },
    y: { range: padded(range(all.map((p) => p[1]))), ...y } });
  const { node, sx, sy } = frame;
  const at = ([a, b]) => `${sx(a).toFixed(1)},${sy(b).toFixed(1)}`;
  for (const mark of marks) {
    const place = sx(mark.x), flip = place > (frame.left + frame.right) / 2;
    node.append(svg("line", { class: "mark", x1: place, x2: place, y1: frame.top, y2: frame.bottom }),
      text(place + (flip ? -5 : 5), frame.bottom - 8, mark.label, { "text-anchor": flip ? "end" : "start" }));
  }
  for (const s of series) {
    if (s.band && s.band.length > 1)
      node.append(svg("path", { class: "band", fill: s.color,
        d: "M" + s.band.map(([t, a]) => at([t, a])).join("L") + "L" +
          [...s.band].reverse().map(([t, , b]) => at([t, b])).join("L") + "Z" }));
    if (s.points.length > 1)
      node.append(svg("path", { class: "line", stroke: s.color, "stroke-dasharray": s.dash, d: "M" + s.points.map(at).join("L") }));
    if (dots || s.points.length < 12)
      for (const p of s.points)
        node.append(svg("path", { class: "shape", fill: s.color, d: outline(s.shape || "circle", 3.5), transform: `translate(${at(p)})` }));
  }
  return node;
}

// One row for each thing: a mark at its value, and a line for its spread.
function dotChart({ rows, x = {}, width, values = 66, label }) {
  const height = 26 * rows.length + (x.label ? 46 : 28);
  const names = Math.min(width * 0.42, 14 + 7 * Math.max(...rows.map((r) => r.label.length)));
  const left = names, right = width - values, bottom = height - (x.label ? 38 : 20);
  const node = canvasOf(width, height, label);
  const limits = padded(range(rows.flatMap((r) => [r.value, r.low, r.high])), 0.06);
  const sx = scale(x.range || limits, [left, right]);
  for (const t of ticks(...(x.range || limits), width < 400 ? 3 : 5))
    node.append(svg("line", { class: "grid", x1: sx(t), x2: sx(t), y1: 4, y2: bottom }),
      text(sx(t), bottom + 15, short(t), { class: "soft", "text-anchor": "middle" }));
  rows.forEach((row, i) => {
    const place = 18 + 26 * i, most = Math.floor((names - 10) / 7);
    const name = row.label.length > most ? row.label.slice(0, most - 1) + "\u2026" : row.label;
    node.append(text(names - 10, place + 4, name, { "text-anchor": "end" }));
    if (known(row.low) && known(row.high))
      node.append(svg("line", { x1: sx(row.low), x2: sx(row.high), y1: place, y2: place, stroke: row.color, "stroke-width": 3, opacity: 0.45 }));
    if (known(row.value))
      node.append(svg("path", { class: "shape", d: outline(row.shape || "circle", 6), fill: row.color, transform: `translate(${sx(row.value)},${place})` }));
    node.append(text(right + 8, place + 4, row.text || short(row.value), { "data-value": known(row.value) ? row.value : null }));
  });
  if (x.label) node.append(text((left + right) / 2, height - 4, x.label, { "text-anchor": "middle" }));
  return node;
}

// Counts, one stack above the other.
function histogram({ edges, stacks, x, y, ...more }) {
  const sums = stacks[0].map((_, i) => stacks.reduce((sum, counts) => sum + counts[i], 0));
  const frame = axes({ ...more, x: { range: [edges[0], edges.at(-1)], ...x }, y: { range: [0, Math.max(1, ...sums) * 1.05], ...y } });
  const below = sums.map(() => 0);
  stacks.forEach((counts, s) => counts.forEach((n, i) => {
    if (!n) return;
    const a = frame.sx(edges[i]), b = frame.sx(edges[i + 1]), top = frame.sy(below[i] + n);
    frame.node.append(svg("rect", { x: a + 0.5, width: Math.max(1, b - a - 1), y: top, height: Math.max(1, frame.sy(below[i]) - top), fill: color(s) },
      svg("title", {}, `${short(edges[i])} to ${short(edges[i + 1])}: ${count(n)}`)));
    below[i] += n;
  }));
  return frame.node;
}

// One small distribution over a line that shows everyone's.
function smallHistogram({ shares, all, low, high, paint, width = 150, label }) {
  const height = 62, bottom = 46, top = 4;
  const highest = Math.max(...shares, ...all, 1e-9), step = width / shares.length;
  const node = canvasOf(width, height, label);
  const sy = scale([0, highest], [bottom, top]);
  shares.forEach((share, i) => share && node.append(svg("rect", { x: i * step + 0.3, width: step - 0.6, y: sy(share), height: bottom - sy(share), fill: paint })));
  const line = all.map((share, i) => `${i ? "H" : "M0,"}${i ? (i * step).toFixed(1) + "V" : ""}${sy(share).toFixed(1)}`).join("");
  node.append(svg("path", { class: "outline", d: `${line}H${width}` }),
    svg("path", { class: "axis", d: `M0,${bottom}H${width}` }),
    text(0, height - 3, short(low), { class: "soft" }),
    text(width, height - 3, short(high), { class: "soft", "text-anchor": "end" }));
  return node;
}

// Numbers in a grid, each cell the darker the larger its share.
function heatMap({ rows, columns, values, show, width, label, rowTitle, columnTitle, share }) {
  const longest = Math.max(...rows.map((r) => r.length));
  const left = Math.max(64, Math.min(width * 0.4, 20 + 7 * longest));
  const cell = Math.min(84, Math.max(26, (width - left - 8) / columns.length));
  const most = Math.floor((left - 14) / 7);
  const height = 44 + 32 * rows.length + 4, total = left + cell * columns.length + 8;
  const node = canvasOf(Math.max(total, 200), height, label);
  node.append(text(left, 14, columnTitle, { class: "soft" }), text(left - 10, 36, rowTitle, { class: "soft", "text-anchor": "end" }));
  columns.forEach((name, j) => node.append(text(left + cell * (j + 0.5), 36, name.length * 7 > cell ? name.slice(0, Math.max(2, Math.floor(cell / 8))) : name, { "text-anchor": "middle" })));
  rows.forEach((name, i) => {
    const y = 44 + 32 * i;
    node.append(text(left - 10, y + 20, name.length > most ? name.slice(0, most - 1) + "\u2026" : name, { "text-anchor": "end" }));
    values[i].forEach((value, j) => {
      const part = known(value) ? share(i, j) : 0;
      node.append(svg("rect", { class: "cell", x: left + cell * j + 1, y: y + 1, width: cell - 2, height: 30, rx: 3 }),
        svg("rect", { x: left + cell * j + 1, y: y + 1, width: cell - 2, height: 30, fill: color(0), opacity: part, rx: 3 }),
        text(left + cell * (j + 0.5), y + 20, known(value) ? show(value) : "", { "text-anchor": "middle", style: part > 0.45 ? "fill:#fff" : null }));
    });
  });
  return node;
}

function legend(items) {
  return el("div", { class: "legend" }, items.map((item) =>
    el("span", {}, "dash" in item ? lineSample(item.color, item.dash) : symbol(item.shape || "square", item.color), el("span", { class: "label" }, item.label))));
}

function dataTable(columns, rows, classes = "") {
  const cell = (column, value) => el("td", { class: column.kind || "" }, value ?? "\u2013");
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" }, el("table", { class: classes },
    el("thead", {}, el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.kind || "" }, c.title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, columns.map((c, i) => cell(c, row[i])))))));
}

function facts(pairs) {
  return el("div", { class: "scroll" }, el("table", { class: "facts" }, el("tbody", {}, pairs.map(([name, value]) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))))));
}
