"use strict";
// One data set of a benchmark: who reached what, how they learnt, who made it.

function pickData(d) {
  page.data = d;
  for (const button of document.querySelectorAll("#scores button.link"))
    button.setAttribute("aria-pressed", String(button.textContent === DATA.data[d].name));
  showOne();
}

function oneSection() {
  const choose = el("select", { id: "which", onchange: () => pickData(Number(choose.value)) }, DATA.data.map((data, d) => el("option", { value: d }, data.name)));
  return section("one", "One data set", el("label", { class: "controls" }, "Data set ", choose), el("div", { id: "one-data" }));
}

function showOne() {
  byId("which").value = page.data;
  const data = DATA.data[page.data];
  const cells = DATA.labels.flatMap((label, l) => DATA.ks[label].map((k) => ({ name: named(l, k), runs: runsOf(page.data, l, k) }))).filter((cell) => cell.runs.length);
  const figures = [reachedFigure(data, cells), learningCurves(data, cells), madeFigure(data)].filter(Boolean);
  byId("one-data").replaceChildren(el("div", { class: "row" }, figures), ...mapFigures(data), runsTable(data));
}

function reachedFigure(data, cells) {
  if (!cells.length) return null;
  const rows = cells.map(({ name, runs }, i) => {
    const scores = runs.map((r) => r.score);
    return { label: name, color: color(i), shape: shape(i), value: meanOf(scores), low: Math.min(...scores), high: Math.max(...scores), text: plusMinus(scores) };
  }).sort((a, b) => b.value - a.value);
  const makers = { relative: known(data.behaviors) ? 1 : null, normalized: data.behaviors, return_mean: data.score }[data.units];
  if (known(makers)) rows.push({ label: "who made the data", value: makers, color: color(-1), shape: "bar", text: fixed(makers, digits(makers)) });
  return figure(`Learners on ${data.name}`, "The mean over seeds, and a line from the lowest to the highest of them.",
    el("div", {}, dotChart({ rows, width: room(2), values: 92, x: { label: UNITS[data.units] }, label: `scores on ${data.name}` })),
    () => [["algorithm", "mean", "lowest", "highest"], ...rows.map((r) => [r.label, r.value, r.low, r.high])]);
}

function learningCurves(data, cells) {
  const series = cells.flatMap(({ name, runs }, i) => {
    const steps = [...new Set(runs.flatMap((r) => r.curve.map((p) => p[0])))].sort((a, b) => a - b);
    if (steps.length < 2) return [];
    const found = steps.map((step) => [step, runs.flatMap((r) => r.curve.filter((p) => p[0] === step).map((p) => p[1]))]);
    return [{ label: name, color: color(i), shape: shape(i), dash: dash(i), points: found.map(([step, values]) => [step, meanOf(values)]),
      band: runs.length > 1 ? found.map(([step, values]) => [step, Math.min(...values), Math.max(...values)]) : [] }];
  });
  if (!series.length) return null;
  return figure(`While learning on ${data.name}`, "Evaluated along the way and at the end: the mean over seeds, and the band from the lowest to the highest. Offline learners see none of these scores.",
    el("div", {}, lineChart({ series, width: room(2), x: { label: "updates" }, y: { label: UNITS[data.units] }, label: `scores while learning on ${data.name}` }), legend(series)),
    () => [["algorithm", "step", "mean", "lowest", "highest"], ...series.flatMap((s) => s.points.map(([step, value], i) => [s.label, step, value, s.band[i]?.[1], s.band[i]?.[2]]))]);
}

function madeFigure(data) {
  const h = data.histogram;
  if (!h) return null;
  const bins = h.counts[0].length, high = h.high > h.low ? h.high : h.low + 1;
  const edges = Array.from({ length: bins + 1 }, (_, i) => h.low + (i * (high - h.low)) / bins);
  const names = h.sources.map((name, i) => ({ label: known(data.sources[name]) ? `${name}: ${fixed(data.sources[name], digits(data.sources[name]))}` : name, color: color(i), shape: "square" }));
  return figure(`Returns in ${data.name}`, "How many trajectories have which return" + (names.length ? ", one color for each that made the data, with its mean (normalized where there is a reference)." : "."),
    el("div", {}, histogram({ edges, stacks: h.counts, width: room(2), x: { label: "return of a trajectory" }, y: { label: "trajectories" }, label: `returns in ${data.name}` }), names.length ? legend(names) : ""),
    () => [["from", "to", ...(h.sources.length ? h.sources : ["trajectories"])], ...h.counts[0].map((_, i) => [edges[i], edges[i + 1], ...h.counts.map((counts) => counts[i])])]);
}

// A row of panels for every K, a panel for every time of the fit and of policy learning.
function mapFigures(data) {
  return DATA.labels.flatMap((label, l) => {
    const shown = new Map();
    for (const run of DATA.runs)
      if (DATA.data[run.data] === data && run.label === l && run.maps && !shown.has(run.k)) shown.set(run.k, run);
    if (!shown.size) return [];
    const grid = el("div", {}, [...shown].map(([k, run]) => el("div", { class: "panels" }, el("h4", {}, `K = ${k}, seed ${run.seed}`), panels(run.maps))));
    return [figure(`Maps: ${label} on ${data.name}`, "Each dot is a trajectory: those that act alike lie together. Crosses are behaviors, the star is the policy, in the plane of the largest variance (its share in percent). Colors are percentiles of return, dark is low; in the last panel they are behaviors. Read from left to right: the fit, then policy learning.",
      grid, () => [["k", "when", "trajectory", "x", "y", "return_percentile", "code"], ...[...shown].flatMap(([k, run]) => times(run.maps).flatMap(([when, point]) =>
        point.xy[0].map((x, i) => [k, when, i, x, point.xy[1][i], run.maps.percentile[i], run.maps.codes[i]])))], "wide")];
  });
}

const times = (maps) => [...maps.points.map((p) => [`${count(p.step)} updates`, p]),
  ...(maps.learning || []).map((p) => [`${count(p.step)} of the policy`, p]), ...(maps.learnt ? [["policy learnt", maps.learnt]] : [])];

function panels(maps) {
  const byReturn = maps.percentile.map((p) => viridis(Math.round(p / 5) / 20));
  const all = times(maps).map(([when, point]) => [point, byReturn, `${when}, ${percent(point.variance, 0)}`]);
  all.push([maps.points.at(-1), maps.codes.map((code) => color(code)), "by behavior"]);
  const size = Math.max(110, Math.min(150, Math.floor((room() - 12 * (all.length - 1)) / all.length)));
  return all.map(([point, paints, title]) => panel(point, paints, title, size));
}

function panel(point, paints, title, size) {
  const node = canvasOf(size, size, title);
  // Places are whole numbers from -999 to 999.
  const x = (v) => (size / 2 + (v / 1000) * (size / 2 - 8)).toFixed(1), y = (v) => (size / 2 - (v / 1000) * (size / 2 - 8)).toFixed(1);
  const dots = new Map();
  paints.forEach((paint, i) => dots.set(paint, (dots.get(paint) || "") + `M${x(point.xy[0][i])},${y(point.xy[1][i])}h0`));
  node.append(svg("rect", { class: "outline", x: 0.5, y: 0.5, width: size - 1, height: size - 1 }));
  for (const [paint, d] of dots) node.append(svg("path", { d, stroke: paint, fill: "none", "stroke-width": 5, "stroke-linecap": "round", opacity: 0.75 }));
  point.behaviors[0].forEach((a, i) => node.append(svg("path", { class: "thin", d: "M-5,-5L5,5M5,-5L-5,5", transform: `translate(${x(a)},${y(point.behaviors[1][i])})` })));
  (point.policy?.[0] || []).forEach((a, i) => node.append(svg("path", { class: "shape", d: outline("star", 9), fill: "#D55E00", transform: `translate(${x(a)},${y(point.policy[1][i])})` })));
  return el("div", { style: `width: ${size}px` }, node, el("span", { class: "label" }, title));
}

function runsTable(data) {
  const mine = DATA.runs.filter((r) => DATA.data[r.data] === data);
  const titles = ["algorithm", "K", "seed", UNITS[data.units] || "score", "return", "episodes", "behaviors in use", "ARI", "updates", "updates a second"];
  return el("details", {}, el("summary", {}, `All ${plural(mine.length, "run")} on ${data.name}`), figure(`Runs on ${data.name}`,
    "One row a run: its score over all episodes, its return with the deviation between episodes, behaviors in use after merging, and their agreement with the sources (ARI).",
    dataTable(titles.map((title, i) => ({ title, kind: i ? "" : "text" })), mine.map((r) => [DATA.labels[r.label], r.k, r.seed, known(r.score) ? fixed(r.score, digits(r.score)) : null,
      known(r.return) ? `${fixed(r.return, 2)} \u00b1 ${fixed(r.return_std, 2)}` : r.diverged ? "diverged" : "not evaluated", r.episodes, r.codes_used, known(r.ari) ? fixed(r.ari, 2) : null, count(r.updates), fixed(r.per_second, 0)])),
    () => [["algorithm", "k", "seed", "score", "return_mean", "return_std", "episodes", "codes_used", "ari", "updates", "updates_per_second"],
      ...mine.map((r) => [DATA.labels[r.label], r.k, r.seed, r.score, r.return, r.return_std, r.episodes, r.codes_used, r.ari, r.updates, r.per_second])]));
}
