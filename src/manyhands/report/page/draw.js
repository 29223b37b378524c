"use strict";
// Elements, colors, shapes, numbers as text, and saving a figure.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  // As text, never as HTML: names come from users' files.
  node.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return node;
}
const el = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

// Okabe and Ito's colors can be told apart by color-blind readers; as many shapes with
// no common divisor make the pairs of color and shape last.
const COLORS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#A89F00", "#8C8C8C"];
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "pentagon", "bar"];
const color = (i) => (i < 0 ? "#8C8C8C" : COLORS[i % COLORS.length]);
const shape = (i) => (i < 0 ? "circle" : SHAPES[i % SHAPES.length]);

const polygon = (corners, r, turn) =>
  "M" + Array.from({ length: corners }, (_, i) => {
    const angle = (2 * Math.PI * i) / corners + turn;
    return `${(r * Math.sin(angle)).toFixed(2)},${(-r * Math.cos(angle)).toFixed(2)}`;
  }).join("L") + "Z";

function outline(name, r) {
  switch (name) {
    case "square": return polygon(4, r * 1.2, Math.PI / 4);
    case "triangle": return polygon(3, r * 1.3, 0);
    case "diamond": return polygon(4, r * 1.3, 0);
    case "down": return polygon(3, r * 1.3, Math.PI);
    case "pentagon": return polygon(5, r * 1.15, 0);
    case "bar": return `M${-r * 1.4},${-r * 0.5}H${r * 1.4}V${r * 0.5}H${-r * 1.4}Z`;
    case "cross": {
      const a = r, b = r * 0.36; // a thick x, that shows on top of any crowd
      return `M0,${-b}L${a - b},${-a}L${a},${-a + b}L${b},0L${a},${a - b}L${a - b},${a}L0,${b}` +
        `L${-a + b},${a}L${-a},${a - b}L${-b},0L${-a},${-a + b}L${-a + b},${-a}Z`;
    }
    case "star":
      return "M" + Array.from({ length: 10 }, (_, i) => {
        const radius = i % 2 ? r * 0.45 : r * 1.15, angle = (Math.PI * i) / 5;
        return `${(radius * Math.sin(angle)).toFixed(2)},${(-radius * Math.cos(angle)).toFixed(2)}`;
      }).join("L") + "Z";
    default: return `M${r},0A${r},${r} 0 1 1 ${-r},0A${r},${r} 0 1 1 ${r},0Z`;
  }
}
const symbol = (name, paint, r = 5) =>
  svg("svg", { class: "inline", viewBox: "-7 -7 14 14", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { d: outline(name, r), fill: paint }));
const lineSample = (paint, dash) =>
  svg("svg", { class: "inline wide", viewBox: "0 0 28 14", width: 28, height: 14, "aria-hidden": "true" },
    svg("path", { class: "line", d: "M0,7H28", stroke: paint, "stroke-dasharray": dash }));

const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
function viridis(share) {
  const place = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1);
  const i = Math.min(VIRIDIS.length - 2, Math.floor(place)), t = place - i;
  return `rgb(${VIRIDIS[i].map((c, j) => Math.round(c + t * (VIRIDIS[i + 1][j] - c))).join(",")})`;
}

const known = (x) => typeof x === "number" && Number.isFinite(x);
const count = (x) => x.toLocaleString("en-US");
const fixed = (x, digits = 3) => (known(x) ? x.toFixed(digits).replace("-", "\u2212") : "\u2013");
const percent = (x, digits = 1) => (known(x) ? `${(100 * x).toFixed(digits)}%` : "\u2013");
function short(x) {
  if (!known(x)) return x === null || x === undefined ? "\u2013" : String(x);
  if (Number.isInteger(x)) return count(x).replace("-", "\u2212");
  const size = Math.abs(x);
  const text = size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(Number(x.toPrecision(4)));
  return text.replace(/^-/, "\u2212");
}
const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floats = (text) => new Float32Array(bytes(text).buffer);

// A figure: a title, buttons to save it, something drawn, and what to see in it.
function figure(title, caption, plot, table, classes = "") {
  plot.classList.add("plot");
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  const buttons = el("div", { class: "save" });
  const node = el("figure", { class: classes, "aria-label": title },
    el("div", { class: "head" }, el("h3", {}, title), buttons), plot,
    el("figcaption", {}, caption));
  buttons.append(el("button", { type: "button", "data-save": "png", "aria-label": `Save ${title} as PNG`,
    onclick: () => savePicture(plot, name) }, "PNG"));
  if (table)
    buttons.append(el("button", { type: "button", "data-save": "csv", "aria-label": `Save ${title} as CSV`,
      onclick: () => save(new Blob([csv(table())], { type: "text/csv" }), `${name}.csv`) }, "CSV"));
  return node;
}

function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined || (typeof value === "number" && !known(value)) ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// All that is drawn within an element, on one canvas, where it stands on the page.
async function picture(plot, scale = 2) {
  plot.scrollLeft = 0; // a table may be wider than the screen
  const frame = plot.getBoundingClientRect(), pad = 12;
  const canvas = el("canvas");
  canvas.width = scale * (Math.max(frame.width, plot.scrollWidth) + 2 * pad);
  canvas.height = scale * (frame.height + 2 * pad);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  pen.fillStyle = style.getPropertyValue("--paper");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.scale(scale, scale);
  pen.translate(pad - frame.left, pad - frame.top);
  for (const cell of plot.querySelectorAll("td[style]")) {
    const box = cell.getBoundingClientRect();
    pen.fillStyle = getComputedStyle(cell).backgroundColor;
    pen.fillRect(box.left, box.top, box.width, box.height);
  }
  for (const node of plot.querySelectorAll("svg, canvas")) {
    const box = node.getBoundingClientRect();
    if (!box.width) continue;
    const drawn = node.tagName === "CANVAS" ? node : await image(node, box);
    pen.drawImage(drawn, box.left, box.top, box.width, box.height);
  }
  for (const row of plot.querySelectorAll("tr")) {
    const box = row.getBoundingClientRect();
    pen.fillStyle = style.getPropertyValue("--line");
    pen.fillRect(box.left, box.bottom - 1, box.width, 1);
  }
  writeWords(pen, plot);
  return canvas;
}

// Legends and tables, word by word: the browser has decided where lines break.
function writeWords(pen, plot) {
  const texts = document.createTreeWalker(plot, NodeFilter.SHOW_TEXT), range = document.createRange();
  pen.textBaseline = "middle";
  while (texts.nextNode()) {
    const node = texts.currentNode;
    if (node.parentElement.closest("svg, .tip")) continue;
    const style = getComputedStyle(node.parentElement);
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    pen.fillStyle = style.color;
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const box = range.getClientRects()[0];
      if (box) pen.fillText(word[0], box.left, box.top + box.height / 2);
    }
  }
}

async function savePicture(plot, name) {
  const canvas = await picture(plot);
  canvas.toBlob((blob) => save(blob, `${name}.png`));
}

// An SVG outside the page knows nothing of its style sheet.
async function image(node, box) {
  const copy = node.cloneNode(true);
  const here = [node, ...node.querySelectorAll("*")], there = [copy, ...copy.querySelectorAll("*")];
  here.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family"])
      there[i].style.setProperty(name, style.getPropertyValue(name));
  });
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  copy.setAttribute("xmlns", SVG);
  const picture = new Image();
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  await picture.decode();
  return picture;
}
