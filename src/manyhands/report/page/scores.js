"use strict";
// What learners reach on every data set: cells of the table, and the table itself.

const UNITS = { relative: "relative return", normalized: "normalized score", return_mean: "return" };
const meanOf = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const deviation = (values) => Math.sqrt(meanOf(values.map((v) => (v - meanOf(values)) ** 2)));
// Two digits behind the point, one where there are two before it, as in the tables on disk.
const digits = (x) => (Math.abs(x) >= 10 ? 1 : 2);
// A run that has diverged is worse than all others; one alone has no deviation.
DATA.runs.forEach((r) => { if (r.diverged) r.score = -Infinity; });
const plusMinus = (values) => {
  const lost = values.filter((v) => v === -Infinity).length;
  if (lost) return `${lost} of ${values.length} diverged`;
  const mean = fixed(meanOf(values), digits(meanOf(values)));
  return values.length > 1 ? `${mean} \u00b1 ${fixed(deviation(values), digits(meanOf(values)))}` : mean;
};
const runsOf = (data, label, k) => DATA.runs.filter((r) => r.data === data && r.label === label && r.k === k && r.score !== null);

// The runs of a cell: where the learner was run with several K, of one or (null) of the best.
function cellOf(data, label, wanted) {
  const ks = DATA.ks[DATA.labels[label]], several = ks.length > 1;
  let best = { runs: [], k: null, several };
  for (const k of ks) {
    if (several && wanted !== null && k !== wanted) continue;
    const runs = runsOf(data, label, k);
    if (runs.length && (!best.runs.length || meanOf(runs.map((r) => r.score)) > meanOf(best.runs.map((r) => r.score))))
      best = { runs, k, several };
  }
  return { ...best, scores: best.runs.map((r) => r.score) };
}
const named = (label, k) => (DATA.ks[DATA.labels[label]].length > 1 ? `${DATA.labels[label]} (K = ${k})` : DATA.labels[label]);
const dash = (i) => [null, "7 4", "2 3"][i % 3];

function scoreSection() {
  const place = el("div", {});
  const show = () => place.replaceChildren(scoreFigure());
  const ks = [...new Set(Object.values(DATA.ks).filter((k) => k.length > 1).flat())];
  const choose = el("select", { id: "k", onchange: () => { page.k = choose.value || null; show(); } },
    el("option", { value: "" }, "the best of each data set"), ks.map((k) => el("option", { value: k, ...(k === page.k ? { selected: "" } : {}) }, `K = ${k}`)));
  show();
  return section("scores", "Scores", ks.length ? el("label", { class: "controls" }, "Number of behaviors ", choose) : null, place);
}

function scoreFigure() {
  const rows = DATA.data.map((data, d) => ({ data, d, cells: DATA.labels.map((_, l) => cellOf(d, l, page.k)) })).filter((row) => row.data.units);
  const seeds = [...new Set(rows.flatMap((row) => row.cells.map((c) => c.runs.length)).filter(Boolean))].sort((a, b) => a - b);
  const line = ({ data, d, cells }) => {
    const means = cells.map((c) => (c.scores.length ? meanOf(c.scores) : null)), [low, high] = range(means);
    const most = Math.max(...means.filter(known)), others = means.filter((m) => m !== null).length > 1;
    const choose = el("button", { type: "button", class: "link", "aria-pressed": String(d === page.data), onclick: () => { pickData(d); byId("one").scrollIntoView(); } }, data.name);
    return el("tr", {}, el("th", { scope: "row" }, choose), cells.map((cell, l) => {
      if (!cell.scores.length) return el("td", {}, "");
      const shade = others && known(means[l]) ? Math.max(0, (means[l] - low) / (high - low)) : 0, best = others && known(means[l]) && means[l] === most;
      return el("td", { style: `background-color: rgb(0 114 178 / ${(0.42 * shade).toFixed(2)})`, title: `seeds ${cell.runs.map((r) => r.seed).join(", ")}: ${cell.scores.map((s) => (known(s) ? short(Number(s.toPrecision(4))) : "diverged")).join(", ")}` },
        el(best ? "b" : "span", {}, plusMinus(cell.scores)), cell.several && page.k === null ? el("small", {}, ` K = ${cell.k}`) : null);
    }));
  };
  const table = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "scores" }, el("table", { class: DATA.labels.length > 8 ? "heat tight" : "heat" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "data"), DATA.labels.map((l) => el("th", { scope: "col" }, l)))),
    el("tbody", {}, rows.map(line))));
  const units = [...new Set(rows.map((row) => row.data.units))];
  const meaning = { relative: "relative returns (1: as good as those who made the data)", normalized: "normalized scores (0: a random policy, 100: an expert)", return_mean: "plain returns" };
  const words = `Mean \u00b1 deviation over ${seeds.length > 1 ? `${seeds[0]} to ${seeds.at(-1)}` : seeds[0] ?? 0} seeds, in ${units.map((u) => meaning[u]).join(" or ")}. ` +
    "A cell is the darker the better it is in its row, the highest mean is bold. Choose a data set to see its runs.";
  return figure("Scores of all learners", words, table, () => [["data", "units", "algorithm", "k", "seeds", "mean", "std"],
    ...rows.flatMap(({ data, cells }) => cells.map((c, l) => [data.name, UNITS[data.units], DATA.labels[l], c.k, c.scores.length, c.scores.length ? meanOf(c.scores) : null, c.scores.length ? deviation(c.scores) : null]).filter((row) => row[4]))]);
}
