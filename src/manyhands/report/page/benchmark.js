"use strict";
// The page of a benchmark: data sets x algorithms x K x seeds.

page.k = null; // the best
page.data = 0;

function summaryTiles() {
  const seeds = new Set(DATA.runs.map((r) => r.seed)).size;
  const seconds = DATA.fleets.map((f) => f.seconds).filter(known);
  const found = [[count(DATA.runs.length), DATA.runs.length === 1 ? "run" : "runs"], [count(DATA.data.length), DATA.data.length === 1 ? "data set" : "data sets"],
    [count(DATA.labels.length), DATA.labels.length === 1 ? "learner" : "learners"], [count(seeds), seeds === 1 ? "seed" : "seeds"]];
  if (seconds.length) found.push([duration(seconds.reduce((a, b) => a + b, 0)), "of fleets, one after another"]);
  return el("div", { class: "tiles", style: `--columns: ${found.length}` }, found.map(([value, label]) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, label))));
}

function duration(seconds) {
  for (const [unit, name] of [[86400, "days"], [3600, "h"], [60, "min"]]) if (seconds >= 1.5 * unit) return `${(seconds / unit).toFixed(1)} ${name}`;
  return `${seconds.toFixed(0)} s`;
}

// The paper's figure: what becomes of a learner as more agents make the data.
function agentsSection() {
  const tasks = new Map();
  DATA.data.forEach((data, d) => { if (data.agents !== null && data.units) tasks.set(data.task, [...(tasks.get(data.task) || []), [data.agents, d]]); });
  const drawn = [...tasks].filter(([, sets]) => sets.length > 1);
  if (!drawn.length) return null;
  const linesOf = (sets) => DATA.labels.map((label, l) => {
    const found = sets.map(([agents, d]) => [agents, cellOf(d, l, null).scores]).filter(([, scores]) => scores.length && scores.every(known)).sort((a, b) => a[0] - b[0]);
    return { label: DATA.ks[label].length > 1 ? `${label}, best K` : label, color: color(l), shape: shape(l), dash: dash(l),
      points: found.map(([agents, scores]) => [agents, meanOf(scores)]), band: found.map(([agents, s]) => [agents, meanOf(s) - deviation(s), meanOf(s) + deviation(s)]) };
  }).filter((line) => line.points.length);
  const lines = drawn.map(([, sets]) => linesOf(sets));
  const units = [...new Set(drawn.flatMap(([, sets]) => sets.map(([, d]) => UNITS[DATA.data[d].units])))].join(" or ");
  const y = { label: units, range: padded(range(lines.flat().flatMap((line) => line.band.flatMap(([, low, high]) => [low, high])))) };
  const figures = drawn.map(([task, sets], t) => {
    const agents = sets.map(([n]) => n);
    return figure(`Agents of ${task}`, `By the number of agents that made the data: the mean over seeds, and one deviation to each side.${units === UNITS.relative ? " Below 1 a learner is worse than those it learnt from." : ""}`,
      el("div", {}, lineChart({ series: lines[t], width: room(2), height: 260, dots: true, x: { label: "agents that made the data", ticks: agents, range: range(agents) }, y, label: `${units} on ${task}` }), legend(lines[t])),
      () => [["algorithm", "agents", "mean", "low", "high"], ...lines[t].flatMap((s) => s.points.map(([n, value], i) => [s.label, n, value, s.band[i][1], s.band[i][2]]))]);
  });
  return section("agents", "More agents", el("div", { class: "row" }, figures));
}

function varyingSection() {
  const figures = DATA.labels.flatMap((label, l) => {
    const ks = DATA.ks[label];
    if (ks.length < 2) return [];
    const rows = DATA.data.map((data, d) => ({ name: data.name, runs: ks.map((k) => runsOf(d, l, k).map((r) => r.score)) })).filter((row) => row.runs.some((r) => r.length));
    const values = rows.map((row) => row.runs.map((r) => (r.length ? meanOf(r) : null)));
    const share = (i, j) => { const [low, high] = range(values[i]); return 0.85 * Math.max(0, (values[i][j] - low) / (high - low)); };
    return [figure(`${label} for every K`, "Mean scores by how many behaviors were allowed; a cell is the darker the better it is in its row.",
      el("div", {}, heatMap({ rows: rows.map((r) => r.name), columns: ks.map(String), values, show: (v) => fixed(v, digits(v)), share, width: room(), label: `${label} for every K`, rowTitle: "data", columnTitle: "K" })),
      () => [["data", "k", "seeds", "mean", "std"], ...rows.flatMap((row) => ks.map((k, j) => [row.name, k, row.runs[j].length, row.runs[j].length ? meanOf(row.runs[j]) : null, row.runs[j].length ? deviation(row.runs[j]) : null]))])];
  });
  return figures.length ? section("varying", "How many behaviors", ...figures) : null;
}

function togetherSection() {
  const parts = DATA.together.map((t) => {
    const order = t.names.map((_, i) => i).sort((a, b) => (t.middle[b][0] ?? -Infinity) - (t.middle[a][0] ?? -Infinity));
    const rows = order.map((i) => ({ label: t.names[i], value: t.middle[i][0], low: t.middle[i][1], high: t.middle[i][2], color: color(i), shape: shape(i), text: fixed(t.middle[i][0], digits(t.middle[i][0])) }));
    const values = order.map((i) => order.map((j) => t.better[i][j]?.[0] ?? null));
    const kind = UNITS[t.kind], on = plural(t.sets, "data set");
    const middle = figure(`Interquartile means, ${kind}`, `The mean of the middle half of all runs on ${on}, with 95% bootstrap intervals (runs drawn anew within each data set). Less moved by a few lucky or failed runs than a mean. Only learners that were run on all of them.`,
      el("div", {}, dotChart({ rows, width: room(2), x: { label: kind }, label: `interquartile means of ${kind}` })),
      () => [["algorithm", "iqm", "low", "high"], ...rows.map((r) => [r.label, r.value, r.low, r.high])]);
    const better = rows.length < 2 ? null : figure(`Who is better, ${kind}`, "How probably a run of the row is better than one of the column on the same data set, on average. 0.5: nobody can tell.",
      el("div", {}, heatMap({ rows: rows.map((r) => r.label), columns: rows.map((_, i) => String(i + 1)), values, show: (v) => v.toFixed(2), share: (i, j) => 0.85 * values[i][j], width: room(2), label: `probability of improvement, ${kind}`, rowTitle: "", columnTitle: "the same, in order" })),
      () => [["algorithm", "other", "probability", "low", "high"], ...order.flatMap((i) => order.filter((j) => j !== i).map((j) => [t.names[i], t.names[j], ...t.better[i][j]]))]);
    return el("div", { class: "row" }, [middle, better].filter(Boolean));
  });
  return parts.length ? section("together", "All data sets together", ...parts) : null;
}

function dataSetsSection() {
  const score = (x) => (known(x) ? fixed(x, digits(x)) : null);
  const rows = DATA.data.map((d) => [d.name, count(d.trajectories), count(d.transitions), score(d.score), score(d.behaviors), Object.entries(d.sources).map(([name, s]) => `${name} ${score(s) ?? "\u2013"}`).join(", ")]);
  return section("data", "The data sets", figure("Data sets", "Mean returns are normalized (0: a random policy, 100: an expert), or plain where nobody has fixed a reference. The behaviors' score is what relative returns are relative to.",
    dataTable([{ title: "data", kind: "text" }, { title: "trajectories" }, { title: "transitions" }, { title: "mean return" }, { title: "behaviors' score" }, { title: "who made it", kind: "text wrap" }], rows),
    () => [["data", "trajectories", "transitions", "mean_return", "behaviors_score", "sources"], ...DATA.data.map((d) => [d.name, d.trajectories, d.transitions, d.score, d.behaviors, Object.entries(d.sources).map(([n, s]) => `${n} ${s}`).join("; ")])]));
}

function costSection() {
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const learners = DATA.labels.map((label) => {
    const mine = DATA.fleets.filter((f) => f.label === label && known(f.seconds));
    return { label, fleets: mine.length, runs: sum(mine.map((f) => f.runs)), seconds: sum(mine.map((f) => f.seconds)) };
  }).filter((one) => one.fleets);
  const sets = (f) => (f.data.length > 3 ? `${f.data.slice(0, 2).join(", ")} and ${f.data.length - 2} more` : f.data.join(", "));
  const spent = (f) => (known(f.seconds) ? `${duration(f.seconds)}${f.resumed ? ", resumed" : ""}` : null);
  const each = (f) => (known(f.seconds) ? fixed(f.seconds / f.runs, 1) : null);
  return section("cost", "What it cost",
    figure("Time of each learner", "The time of its fleets, one after another. A fleet is what trained in one process: all K and seeds of a learner on one or several data sets, from reading the data to the last episode. Fleets that ran at the same time slow each other down.",
      dataTable([{ title: "algorithm", kind: "text" }, { title: "fleets" }, { title: "runs" }, { title: "time" }, { title: "seconds a run" }],
        learners.map((one) => [one.label, one.fleets, one.runs, duration(one.seconds), each(one)])),
      () => [["algorithm", "fleets", "runs", "seconds"], ...learners.map((one) => [one.label, one.fleets, one.runs, one.seconds])]),
    el("details", {}, el("summary", {}, `All ${plural(DATA.fleets.length, "fleet")}`), figure("Fleets", "The longest first; with the device each ran on.",
      dataTable([{ title: "algorithm", kind: "text" }, { title: "data", kind: "text wrap" }, { title: "runs" }, { title: "time" }, { title: "seconds a run" }, { title: "device", kind: "text" }],
        DATA.fleets.map((f) => [f.label, sets(f), f.runs, spent(f), each(f), `${f.device}, ${plural(f.cores, "core")}`])),
      () => [["algorithm", "data", "runs", "seconds", "resumed", "device", "cores"], ...DATA.fleets.map((f) => [f.label, f.data.join(" "), f.runs, f.seconds, f.resumed, f.device, f.cores])])));
}

function render() {
  const devices = [...new Set(DATA.fleets.map((f) => f.device))].join(", "), evaluated = DATA.runs.some((r) => r.score !== null);
  layOut({
    title: `${DATA.name}: results`,
    lead: `${DATA.labels.join(", ")} on ${DATA.data.length === 1 ? DATA.data[0].name : plural(DATA.data.length, "data set")}; ${devices}.`,
    sections: [summaryTiles(), evaluated ? scoreSection() : section("scores", "Scores", note("No run was evaluated: the preset has episodes = 0.")),
      oneSection(), agentsSection(), varyingSection(), togetherSection(), dataSetsSection(), costSection()],
    foot: "The numbers are those of results.jsonl.",
  });
  showOne();
}

begin(render);
