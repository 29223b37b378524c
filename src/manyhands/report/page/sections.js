"use strict";
// The sections of the page: each takes a run and returns its elements, or nothing.

const spread = (s, digits = 2) => `${fixed(s.mean, digits)} \u00b1 ${fixed(s.std, digits)}, from ${fixed(s.min, digits)} to ${fixed(s.max, digits)}`;

function dataSection(run) {
  const card = run.card, about = run.summary.data;
  if (!card)
    return section("data", "The data", facts([["name", about.name], ["trajectories", count(about.trajectories)],
      ["transitions", count(about.transitions)], ["sources", about.sources ? count(about.sources) : "unknown"]]), note(run.missing));
  const bounds = card.action_low.map((low, i) => `${short(low)} to ${short(card.action_high[i])}`);
  const same = new Set(bounds).size === 1;
  const left = [facts([
    ["name", card.name], ["trajectories", count(card.trajectories)], ["transitions", count(card.transitions)],
    ["observations", plural(card.observation_size, "number")],
    ["actions", `${plural(card.action_size, "number")}, ${same ? bounds[0] : bounds.join(", ")}`],
    ["returns", spread(card.returns)], ["lengths", spread(card.lengths, 1)],
    ["ends", `${count(card.ends.terminal)} terminal, ${count(card.ends.timeout)} time-out, ${count(card.ends.cut_off)} cut off`],
    ...(known(card.log_prob) ? [["logged log-probability", `${fixed(card.log_prob)} nats a transition`]] : []),
    ...(card.env_id ? [["environment", card.env_id]] : []), ["fingerprint", el("code", {}, card.fingerprint)]])];
  const right = run.returns ? [returnsFigure(run.returns)] : [];
  if (card.sources.length)
    left.push(el("h3", {}, "Known sources"), dataTable(
      [{ title: "source" }, { title: "trajectories" }, { title: "transitions" }, { title: "return" }],
      card.sources.map((s) => [s.name, count(s.trajectories), count(s.transitions), `${fixed(s.return_mean, 2)} \u00b1 ${fixed(s.return_std, 2)}`])));
  left.push(el("h3", {}, "Remarks"), card.remarks.length
    ? el("ul", { class: "remarks" }, card.remarks.map((r) => el("li", {}, r))) : el("p", {}, "Nothing to remark."));
  return section("data", "The data", el("div", { class: "row" }, el("div", { class: "block" }, left), el("div", {}, right)));
}

function returnsFigure(returns) {
  const [low, high] = [returns.edges[0], returns.edges.at(-1)];
  return figure("Returns in the data", `How many trajectories have which return, from ${short(low)} to ${short(high)}. Several humps often mean several hands.`,
    el("div", {}, histogram({ edges: returns.edges, stacks: [returns.counts], width: room(2), x: { label: "return" }, y: { label: "trajectories" }, label: "histogram of returns" })),
    () => [["from", "to", "trajectories"], ...returns.counts.map((n, i) => [returns.edges[i], returns.edges[i + 1], n])]);
}

function behaviorSection(run) {
  const fit = run.fit;
  if (!fit) return section("behaviors", "The behaviors", note(noBehaviors(run)));
  const nats = fit.distance === "nats", sources = fit.behaviors.some((b) => b.sources);
  const columns = [{ title: "behavior" }, { title: "share" }, { title: "trajectories" }, { title: "return" }, { title: "log-probability" },
    { title: "nearest other" }, ...(sources ? [{ title: "sources", kind: "text wrap" }] : [])];
  const mixed = (b) => Object.entries(b.sources || {}).sort((a, c) => c[1] - a[1]).map(([name, n]) => `${name} ${count(n)}`).join(", ");
  const far = (b) => b.nearest ? `${b.nearest.code}, at ${fixed(b.nearest.distance, nats ? 2 : 3)}${nats ? " nats" : ""}` : "\u2013";
  const best = fit.behaviors.reduce((a, b) => (b.return_mean > a.return_mean ? b : a));
  const table = dataTable(columns, fit.behaviors.map((b) => [
    el("span", {}, symbol(shape(b.code), color(b.code)), ` ${b.code}`), percent(b.share), count(b.trajectories),
    `${fixed(b.return_mean, 2)} \u00b1 ${fixed(b.return_std, 2)}`, fixed(b.log_prob), far(b), ...(sources ? [mixed(b)] : [])]));
  const words = `${plural(fit.behaviors.length, "behavior")}; the best by mean return is ${best.code} with ${fixed(best.return_mean, 2)}. ` +
    "Log-probability: nats a transition of its own trajectories. " + (nats
    ? "Nearest other: the behavior that explains its trajectories with the least loss, in nats a transition; below about 0.1 the two are hard to tell apart."
    : "Nearest other: by the angle between embeddings (0 is the same direction).");
  const parts = [figure("Behaviors", words, table, () => [
    ["code", "share", "trajectories", "return_mean", "return_std", "log_prob", "nearest", "distance"],
    ...fit.behaviors.map((b) => [b.code, b.share, b.trajectories, b.return_mean, b.return_std, b.log_prob, b.nearest?.code, b.nearest?.distance])])];
  parts.push(fit.histograms ? actionsFigure(fit) : note(`What each behavior's actions look like is left out. ${run.missing}`));
  return section("behaviors", "The behaviors", ...parts);
}

function actionsFigure(fit) {
  const h = fit.histograms, dimensions = h.all.length, shown = fit.behaviors.slice(0, 16);
  const phone = window.innerWidth <= 820;
  const columns = Math.min(phone ? 2 : 6, dimensions);
  const width = Math.max(90, Math.min(phone ? 170 : 148, (room() - 12 * (columns - 1)) / columns));
  const grid = el("div", { class: "multiples" });
  for (const b of shown)
    grid.append(el("div", { style: `grid-template-columns: repeat(${columns}, ${width}px)` },
      el("span", { class: "label name" }, `behavior ${b.code}`),
      h.by_code[b.code].map((shares, j) => el("div", {},
        smallHistogram({ shares, all: h.all[j], low: h.low[j], high: h.high[j], paint: color(b.code), width, label: `actions of behavior ${b.code}, dimension ${j}` }),
        el("span", { class: "label" }, `action ${j}`)))));
  const left = [dimensions < h.of_dimensions ? `the first ${dimensions} of ${h.of_dimensions} action dimensions` : "",
    shown.length < fit.behaviors.length ? `the ${shown.length} largest behaviors` : ""].filter(Boolean).join(" and ");
  return figure("Actions of each behavior",
    "How often each behavior takes which action, from the lowest to the highest allowed; the line is all data together. Where bars and line differ, the behavior does something of its own." + (left ? ` Shown: ${left}.` : ""),
    grid, () => [["code", "dimension", "bin_low", "bin_high", "share", "share_of_all"],
      ...fit.behaviors.flatMap((b) => h.by_code[b.code].flatMap((shares, j) => shares.map((share, i) => {
        const w = (h.high[j] - h.low[j]) / shares.length;
        return [b.code, j, h.low[j] + i * w, h.low[j] + (i + 1) * w, share, h.all[j][i]];
      })))]);
}

function mapSection(run, page) {
  const fit = run.fit;
  if (!fit) return null;
  if (fit.trajectories < 2)
    return section("map", "The map", note("A single trajectory makes no map."));
  if (!fit.places)
    return section("map", "The map", note(`The method ${fit.summary.behavior.method} places no trajectories on a map; manyhands fit DATA --method vq does.`));
  const map = new TrajectoryMap(fit);
  page.maps.push(map);
  const sampled = map.many < fit.trajectories;
  const caption = `Each mark is a trajectory; those that act alike lie together. ${percent(fit.places.variance, 0)} of the variance of the embeddings W is shown, by their first two principal components; crosses are the behaviors E` +
    (fit.places.policy ? ", the star is the policy e\u03c0 that was learnt" : "") + ". Clouds apart are behaviors apart; a cloud with several colors of source is one that the fit could not divide." +
    (sampled ? ` ${count(map.many)} of ${count(fit.trajectories)} trajectories are shown, drawn by chance with at least some of every behavior.` : "");
  const node = figure("Map of trajectories", caption, map.plot, () => map.table());
  node.prepend(map.controls);
  node.querySelector(".head").after(map.controls);
  return section("map", "The map", el("div", { class: "map" }, node, map.detail), map.spoken);
}

function certaintySection(run) {
  const fit = run.fit;
  if (!fit) return null;
  const about = fit.summary.behavior, certain = fit.certain, half = room(2);
  const unsure = certain.below_90, parts = [];
  const figures = [figure("How sure each assignment is",
    `The probability of the behavior that each trajectory was given to. ${unsure ? `${plural(unsure, "trajectory", "trajectories")} of ${count(fit.trajectories)} ${unsure === 1 ? "is" : "are"} below 90%: look at ${unsure === 1 ? "it" : "these"} on the map.` : "All are above 90%."}${certain.least < 0.999 ? ` The least sure has ${percent(certain.least)}.` : ""} These are the model's own probabilities; they are too sure where the model is wrong.`,
    el("div", {}, histogram({ edges: certain.bins, stacks: [certain.counts], width: half, x: { label: "probability" }, y: { label: "trajectories" }, label: "histogram of probabilities" })),
    () => [["from", "to", "trajectories"], ...certain.counts.map((n, i) => [certain.bins[i], certain.bins[i + 1], n])])];
  if (known(about.single_gaussian_heldout_log_prob) && about.method !== "gaussian") figures.push(heldOutFigure(about, half));
  if (about.k_curve?.length > 1) figures.push(kFigure(about, half));
  if (fit.curves.heldout_log_prob)
    figures.push(curveFigure("Held-out log-probability while fitting", fit.curves.heldout_log_prob, fit.groups, half, "nats a transition",
      "Still rising at the right: more --steps would help. Falling: it has begun to learn by heart.", true));
  parts.push(el("div", { class: "row" }, figures));
  if (!known(about.single_gaussian_heldout_log_prob))
    parts.push(note("No single Gaussian was fitted to compare with: manyhands fit DATA does that unless told --no-compare."));
  parts.push(unexplainedNote(run));
  if (fit.replicas.length > 1) parts.push(replicaTable(fit));
  if (about.calibration) parts.push(el("p", {},
    `Against the logged log-probabilities the estimate is off by ${fixed(about.calibration.mean_absolute_error)} nats a transition (mean absolute error), bias ${fixed(about.calibration.bias)}.`));
  return section("certainty", "How sure we are", ...parts);
}

function heldOutFigure(about, width) {
  const single = about.single_gaussian_heldout_log_prob;
  const rows = [{ label: "this fit", value: about.heldout_log_prob, text: fixed(about.heldout_log_prob), color: color(0) },
    { label: "one Gaussian", value: single, text: fixed(single), color: color(-1), shape: "square" }];
  const gain = about.heldout_log_prob - single;
  const words = gain > 0.02 ? `Knowing who acts gains ${fixed(gain)} nats a transition on steps that were held out: more than one behavior is in the data.`
    : gain < -0.02 ? `It explains held-out steps worse than one Gaussian, by ${fixed(-gain)} nats a transition: too few updates, or too little data. Do not trust these behaviors.`
    : `Knowing who acts gains ${fixed(gain)} nats a transition on steps that were held out: next to nothing. One behavior may be all there is.`;
  return figure("Held-out log-probability", words,
    el("div", {}, dotChart({ rows, width, x: { label: "nats a transition" }, label: "held-out log-probability" })),
    () => [["model", "heldout_log_prob"], ...rows.map((r) => [r.label, r.value])]);
}

function kFigure(about, width) {
  const curve = [...about.k_curve].sort((a, b) => a.codes - b.codes).filter((s) => known(s.heldout));
  return figure("How many behaviors",
    `What is lost on held-out steps when behaviors are merged one by one. The chosen number, ${about.codes_used}, should stand where the curve bends: to the left of it, merging costs much, to the right nothing.`,
    el("div", {}, lineChart({ width, label: "held-out log-probability by number of behaviors", series: [{ points: curve.map((s) => [s.codes, s.heldout]), color: color(0) }],
      marks: [{ x: about.codes_used, label: `${about.codes_used} chosen` }],
      x: { label: "behaviors", log: true, range: [1, Math.max(2, curve.at(-1).codes, about.codes_used)] }, y: { label: "nats a transition" }, dots: true })),
    () => [["behaviors", "heldout_log_prob", "evidence_against_merging"], ...curve.map((s) => [s.codes, s.heldout, s.evidence])]);
}

function unexplainedNote(run) {
  const fit = run.fit;
  if (!fit.unexplained) return note(`Which trajectories no behavior explains is left out. ${run.missing}`);
  const all = fit.shown.code.length === fit.trajectories ? "" : " shown on the map";
  if (!fit.unexplained.length) return el("p", { id: "unexplained" }, `Every trajectory${all} is about as probable as its behavior's others: none is unexplained.`);
  const few = fit.unexplained.slice(0, 20).map((m) => fit.shown.trajectory[m]).join(", ");
  return el("p", { id: "unexplained" }, `${plural(fit.unexplained.length, "trajectory", "trajectories")} of ${count(fit.shown.code.length)}${all} ${fit.unexplained.length === 1 ? "is" : "are"} explained by no behavior (ringed on the map): ${few}${fit.unexplained.length > 20 ? ", \u2026" : ""}.`);
}

function replicaTable(fit) {
  const sources = fit.replicas.some((r) => known(r.ari));
  const best = fit.replicas.reduce((a, b, i) => (b.heldout_log_prob > fit.replicas[a].heldout_log_prob ? i : a), 0);
  return figure("Replicas", `Fits with other seeds or numbers of behaviors; the page shows ${fit.summary.behavior.seed === fit.replicas[best].seed && fit.summary.behavior.k === fit.replicas[best].k ? "the best on held-out steps" : "the one that the policy began from"}. Where they agree, the answer does not hang on chance.`,
    dataTable([{ title: "replica" }, { title: "k" }, { title: "seed" }, { title: "behaviors found" }, { title: "held-out log-probability" }, ...(sources ? [{ title: "ARI" }] : [])],
      fit.replicas.map((r, i) => [i, r.k, r.seed, r.codes_used, fixed(r.heldout_log_prob), ...(sources ? [fixed(r.ari)] : [])])),
    () => [["replica", "k", "seed", "codes_used", "heldout_log_prob", "ari"], ...fit.replicas.map((r, i) => [i, r.k, r.seed, r.codes_used, r.heldout_log_prob, r.ari])]);
}

function confusionSection(run) {
  const fit = run.fit;
  if (!fit) return null;
  const c = fit.confusion, about = fit.summary.behavior;
  if (!c) return section("sources", "Known sources", note("The data does not say who made which trajectory, so there is nothing to check the behaviors against. Readers take such labels with --source-from FIELD."));
  const sums = c.counts.map((row) => row.reduce((a, b) => a + b, 0));
  return section("sources", "Known sources", figure("Sources and behaviors",
    `How many trajectories of each known source went to each behavior; the sources were not used for fitting. One deeply colored cell in every row and column is a perfect recovery: ARI ${fixed(about.ari)} (1 is perfect, 0 is chance), NMI ${fixed(about.nmi)}, purity ${percent(about.purity)}, ${percent(about.matched_accuracy)} right when each behavior is matched to one source.`,
    el("div", {}, heatMap({ rows: c.sources.map((s) => s || "unknown"), columns: c.codes.map(String), values: c.counts, show: count, share: (i, j) => c.counts[i][j] / (sums[i] || 1),
      width: room(), label: "sources and behaviors", rowTitle: "source", columnTitle: "behavior" })),
    () => [["source", ...c.codes], ...c.sources.map((s, i) => [s, ...c.counts[i]])]));
}

// Mean over replicas that differ by their seed, and the band from the lowest to the highest.
function bands(curve, groups) {
  return groups.map((group, g) => {
    const points = [], band = [];
    curve.steps.forEach((step, i) => {
      const values = group.replicas.map((r) => curve.values[r]?.[i]).filter(known);
      if (!values.length) return;
      points.push([step, values.reduce((a, b) => a + b, 0) / values.length]);
      band.push([step, Math.min(...values), Math.max(...values)]);
    });
    return { label: group.label, points, band: group.replicas.length > 1 ? band : [], color: color(g), shape: shape(g), dash: [null, "7 4", "2 3"][g % 3] };
  });
}

function curveFigure(title, curve, groups, width, yLabel, see, robust = false) {
  const series = bands(curve, groups), many = Math.max(...groups.map((g) => g.replicas.length));
  const plot = el("div", {});
  const y = { label: yLabel };
  if (robust) { // the first steps of a fit would squeeze all others together
    const values = series.flatMap((s) => s.points.map((p) => p[1])).sort((a, b) => a - b);
    const low = values[Math.floor(values.length * 0.08)], high = values.at(-1);
    y.range = padded([low, high > low ? high : low + 1], 0.08);
    series.forEach((s) => { s.points = s.points.filter((p) => p[1] >= y.range[0]); s.band = s.band.filter((b) => b[1] >= y.range[0]); });
  }
  plot.append(lineChart({ width, series, x: { label: "updates" }, y, label: title }));
  if (series.length > 1) plot.append(legend(series));
  return figure(title, `${many > 1 ? `The mean of ${many} seeds, and the band from the lowest to the highest. ` : ""}${see}`, plot,
    () => [["step", ...groups.flatMap((g) => g.replicas.map((r) => `${g.label} replica ${r}`))],
      ...curve.steps.map((step, i) => [step, ...groups.flatMap((g) => g.replicas.map((r) => curve.values[r]?.[i]))])]);
}

// Returns along the way, and at the end: metrics.jsonl has the first, the summary the last.
function returnsCurve(run) {
  const curve = run.policy?.curves["evaluation/return_mean"], end = run.summary.timing.updates;
  if (!curve || curve.steps.at(-1) >= end) return curve;
  return { steps: [...curve.steps, end], values: curve.values.map((v, r) => [...v, run.policy.rows[r]?.return_mean]) };
}

// No number after all, where it was played, is what becomes of a policy that diverges.
const returned = (r) => (known(r.return_mean) ? `${fixed(r.return_mean, 2)} \u00b1 ${fixed(r.return_std, 2)}` : r.returns?.length ? "diverged" : "not evaluated");

function policySection(run) {
  if (!run.policy) return section("policy", "The policy", note("This run estimated behaviors and learnt no policy: manyhands train DATA --behavior RUN --out NEW does."));
  const { rows, curves, groups } = run.policy, evaluated = rows.some((r) => known(r.return_mean));
  const names = groups.length > 1 ? rows.map((_, r) => groups.find((g) => g.replicas.includes(r))?.label) : null;
  const table = dataTable([{ title: "replica" }, { title: "algorithm", kind: "text" }, ...(names ? [{ title: "options", kind: "text" }] : []), { title: "seed" }, { title: "return" }, { title: "episodes" }, { title: "normalized" }, { title: "relative" }],
    rows.map((r, i) => [i, r.algo, ...(names ? [names[i]] : []), r.seed, returned(r), known(r.episodes) ? count(r.episodes) : null, known(r.normalized) ? fixed(r.normalized, 1) : null, known(r.relative) ? fixed(r.relative) : null]));
  const parts = [figure("Evaluation", evaluated
    ? `Returns in the environment${run.config.env ? ` ${run.config.env}` : ""} after training, mean \u00b1 deviation over episodes. Normalized: 0 is a random policy, 100 an expert. Relative: in units of the mean of the policies that made the data, so above 1 is better than they were${rows.some((r) => known(r.relative)) ? "" : "; both need reference returns, which this environment has none of"}.`
    : "This policy was not evaluated: manyhands evaluate RUN --env ID plays it, and train --env ID does along the way.", table,
    () => [["replica", "algo", "seed", "return_mean", "return_std", "episodes", "normalized", "relative"], ...rows.map((r, i) => [i, r.algo, r.seed, r.return_mean, r.return_std, r.episodes, r.normalized, r.relative])])];
  const figures = [];
  if (evaluated) figures.push(againstFigure(run, rows));
  const curve = returnsCurve(run);
  if (curve)
    figures.push(curveFigure("Return while learning", curve, groups, room(2), "return",
      "Evaluated along the way and at the end; offline learners see none of these returns. A curve that falls late has left what the data supports."));
  parts.push(el("div", { class: "row" }, figures));
  const others = Object.keys(curves).filter((name) => !name.startsWith("evaluation/"));
  if (others.length) parts.push(learningFigure(curves, groups, others));
  return section("policy", "The policy", ...parts);
}

function againstFigure(run, rows) {
  const { groups } = run.policy, group = (r) => groups.find((g) => g.replicas.includes(rows.indexOf(r)))?.label || r.algo;
  const own = rows.filter((r) => known(r.return_mean)).map((r) => ({ label: rows.length > 1 ? `${group(r)}, seed ${r.seed}` : r.algo, value: r.return_mean, low: r.return_mean - r.return_std, high: r.return_mean + r.return_std, color: "#D55E00", shape: "star", text: fixed(r.return_mean, 2) }));
  const behaviors = (run.fit?.behaviors || []).map((b) => ({ label: `behavior ${b.code}`, value: b.return_mean, low: b.return_mean - b.return_std, high: b.return_mean + b.return_std, color: color(b.code), shape: shape(b.code), text: fixed(b.return_mean, 2) }));
  // Where nobody asked who made what, the sources if they are known, or all of it.
  const all = run.card ? [{ name: "the data", return_mean: run.card.returns.mean, return_std: run.card.returns.std }] : [];
  if (!behaviors.length)
    (run.card?.sources.length ? run.card.sources : all).forEach((s, i) => behaviors.push({ label: s.name, value: s.return_mean, low: s.return_mean - s.return_std, high: s.return_mean + s.return_std, color: color(i), shape: shape(i), text: fixed(s.return_mean, 2) }));
  behaviors.sort((a, b) => b.value - a.value);
  const mean = own.reduce((a, b) => a + b.value, 0) / own.length, best = behaviors[0];
  const gap = best ? fixed(Math.abs(mean - best.value), 2) : "";
  const place = Number(gap) === 0 ? "that" : `${gap} ${mean > best?.value ? "above" : "below"} that`;
  const words = best && behaviors.length > 1 ? `The policy's mean return is ${place} of the best ${run.fit ? "behavior" : "source"} (${best.label.replace("behavior ", "")}).` : best ? `The trajectories in the data have a mean return of ${fixed(best.value, 2)}.` : "";
  return figure(run.fit ? "The policy beside the behaviors" : "The policy beside the data", `Mean return, and one deviation to each side: stars are the policy in the environment, the others are trajectories in the data. ${words}`,
    el("div", {}, dotChart({ rows: [...own, ...behaviors.slice(0, 16)], width: room(2), x: { label: "return" }, label: "returns of policy and behaviors" })),
    () => [["who", "return_mean", "low", "high"], ...[...own, ...behaviors].map((r) => [r.label, r.value, r.low, r.high])]);
}

function learningFigure(curves, groups, names) {
  const place = el("div", {});
  const show = (name) => place.replaceChildren(curveFigure("Learning curve", curves[name], groups, room(), name, "A loss or value that runs away is a sign of trouble; one that levels off is learnt."));
  const choose = el("select", { id: "metric", onchange: () => show(choose.value) }, names.map((n) => el("option", { value: n }, n)));
  show(names.find((n) => n === "critic/loss") || names[0]);
  choose.value = names.find((n) => n === "critic/loss") || names[0];
  return el("div", { style: "margin-top:14px" }, el("label", { class: "controls" }, "Metric ", choose), place);
}

const noBehaviors = (run) => run.config.behavior === "given"
  ? "This policy began from behaviors that were given to it, and their run is not to be found; give that run to manyhands report instead, or beside this one."
  : `The algorithm ${run.summary.policy?.algo} does not ask who made what: manyhands fit DATA --out RUN does.`;

function runSection(run) {
  const timing = run.summary.timing, config = run.config, machine = config.environment || {};
  const flat = (value) => (value === null || value === undefined ? "none" : Array.isArray(value) ? value.map(flat).join(", ") : typeof value === "object" ? JSON.stringify(value) : short(value));
  const options = [].concat(config.options);
  const rows = Object.keys(options[0]).map((name) => [name, [...new Set(options.map((o) => flat(o[name])))].join(", ")]);
  const kept = Object.entries(config).filter(([name, value]) => !["options", "environment", "data", "loaded_from"].includes(name) && value !== null && !(name === "k" && config.algo && (config.behavior === "given" || !run.fit)));
  const told = (name, value) => name === "evaluations" ? `${value[0]} along the way, ${plural(value[1], "episode")} each` : flat(value);
  return section("run", "The run",
    facts([...kept.map(([name, value]) => [name.replaceAll("_", " "), told(name, value)]),
      ...(config.loaded_from ? [["data read from", el("code", {}, config.loaded_from.data)]] : []),
      ["updates", count(timing.updates)], ["time", `${fixed(timing.seconds, 1)} s, ${fixed(timing.updates_per_second, 0)} updates a second; compiling took ${fixed(timing.compile_seconds, 1)} s`],
      ["device", `${timing.device}, ${machine.cores} cores`],
      ["versions", [`manyhands ${machine.manyhands}`, `Python ${machine.python}`, ...Object.entries(machine.packages || {}).map(([n, v]) => `${n} ${v}`)].join(", ")]]),
    el("details", {}, el("summary", {}, `All ${rows.length} hyper-parameters`), facts(rows)));
}
