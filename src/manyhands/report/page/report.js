"use strict";
// Puts the page of one run together, or of several that are compared.

page.run = 0;

function verdict(run) {
  const about = run.summary.data, fit = run.fit?.summary.behavior, policy = run.summary.policy;
  const words = [`${count(about.trajectories)} trajectories, ${count(about.transitions)} transitions`];
  if (fit) words.push(`${plural(fit.codes_used, "behavior")} found`);
  if (policy && known(policy.return_mean)) words.push(`a policy with a return of ${fixed(policy.return_mean, 2)}`);
  return words.join(", ") + ".";
}

function tiles(run) {
  const about = run.fit?.summary.behavior, policy = run.summary.policy, found = [];
  const add = (key, value, label) => found.push(el("div", { class: "tile" }, el("b", { "data-number": key }, value), el("span", {}, label)));
  add("data.trajectories", count(run.summary.data.trajectories), "trajectories");
  add("data.transitions", count(run.summary.data.transitions), "transitions");
  if (about) {
    add("behavior.codes_used", count(about.codes_used), "behaviors found");
    add("behavior.heldout_log_prob", fixed(about.heldout_log_prob), "held-out log-probability, nats a transition");
    if (known(about.single_gaussian_heldout_log_prob) && about.method !== "gaussian")
      add("behavior.single_gaussian_heldout_log_prob", fixed(about.single_gaussian_heldout_log_prob), "the same of a single Gaussian");
    if (known(about.ari)) add("behavior.ari", fixed(about.ari), "agreement with the sources (ARI)");
  }
  if (policy && known(policy.return_mean)) add("policy.return_mean", fixed(policy.return_mean, 2), `return of ${policy.algo}${run.policy.rows.length > 1 ? `, the first of ${run.policy.rows.length}` : ""}`);
  if (policy && known(policy.relative)) add("policy.relative", fixed(policy.relative), "relative to the data's policies");
  const columns = found.length > 6 ? Math.ceil(found.length / 2) : found.length;
  return el("div", { class: "tiles", style: `--columns: ${columns}` }, found);
}

function comparisonSection(runs) {
  const { agreement } = DATA.comparison, names = runs.map((r) => r.name);
  const rows = runs.map((r) => ({ run: r, fit: r.fit?.summary.behavior, policy: r.summary.policy }));
  const mean = (row) => row.run.summary.mean?.return_mean ?? row.policy?.return_mean;
  const across = (row) => row.run.summary.std?.return_mean ?? row.policy?.return_std;
  const table = dataTable([{ title: "run" }, { title: "data", kind: "text" }, { title: "method", kind: "text" }, { title: "k" }, { title: "behaviors" }, { title: "held-out" }, { title: "one Gaussian" }, { title: "ARI" }, { title: "return" }, { title: "relative" }, { title: "seconds" }],
    rows.map(({ run, fit, policy }, i) => [run.name, run.summary.data.name, policy ? policy.algo : fit?.method, fit ? short(fit.k) : null, fit?.codes_used, fit ? fixed(fit.heldout_log_prob) : null, fit ? fixed(fit.single_gaussian_heldout_log_prob) : null, fit ? fixed(fit.ari) : null, known(mean(rows[i])) ? fixed(mean(rows[i]), 2) : null, policy ? fixed(policy.relative) : null, fixed(run.summary.timing.seconds, 1)]));
  const parts = [figure("Runs", "One row a run. Held-out log-probabilities (nats a transition) and returns may be compared between runs on the same data only; where a run has several replicas, the return is their mean.", table,
    () => [["run", "data", "method", "k", "codes_used", "heldout_log_prob", "single_gaussian_heldout_log_prob", "ari", "return_mean", "relative", "seconds"],
      ...rows.map((row) => [row.run.name, row.run.summary.data.name, row.policy?.algo ?? row.fit?.method, row.fit?.k, row.fit?.codes_used, row.fit?.heldout_log_prob, row.fit?.single_gaussian_heldout_log_prob, row.fit?.ari, mean(row), row.policy?.relative, row.run.summary.timing.seconds])])];
  const figures = [];
  const dots = (title, caption, values, label) => {
    const kept = values.filter((v) => known(v.value));
    if (kept.length > 1) figures.push(figure(title, caption, el("div", {}, dotChart({ rows: kept, width: room(2), x: { label }, label: title })), () => [["run", label], ...kept.map((v) => [v.label, v.value])]));
  };
  dots("Held-out log-probability of each run", "Further right explains steps that were held out better.", rows.map((r, i) => ({ label: names[i], value: r.fit?.heldout_log_prob, color: color(i), shape: shape(i), text: fixed(r.fit?.heldout_log_prob) })), "nats a transition");
  dots("Return of each run", "Further right is better; the line is one deviation over replicas, or over episodes where there is one replica.", rows.map((r, i) => ({ label: names[i], value: mean(r), low: mean(r) - across(r), high: mean(r) + across(r), color: color(i), shape: shape(i), text: fixed(mean(r), 2) })), "return");
  if (agreement.filter((row) => row.some(known)).length > 1)
    figures.push(figure("Do the runs agree on who made what?", "Adjusted Rand index between the assignments of two runs on the same data: 1 is the same division of the trajectories, 0 is chance. Runs that agree with each other are more likely right.",
      el("div", {}, heatMap({ rows: names, columns: names.map((_, i) => String(i + 1)), values: agreement, show: (v) => v.toFixed(2), share: (i, j) => Math.max(0, agreement[i][j]), width: room(2), label: "agreement between runs", rowTitle: "run", columnTitle: "the same runs, in order" })),
      () => [["run", ...names], ...names.map((n, i) => [n, ...agreement[i]])]));
  const curve = overlaid(runs);
  if (curve) figures.push(curve);
  parts.push(el("div", { class: "row" }, figures));
  return section("comparison", "Comparison", ...parts);
}

function overlaid(runs) {
  const series = runs.flatMap((run, i) => {
    const curve = returnsCurve(run);
    return curve ? bands(curve, run.policy.groups).map((s) => ({ ...s, label: run.policy.groups.length > 1 ? `${run.name}: ${s.label}` : run.name, run: i })) : [];
  });
  // A run has its color in all of the comparison, unless it has several curves.
  const alone = new Set(series.map((s) => s.run)).size === series.length;
  series.forEach((s, i) => { const at = alone ? s.run : i; Object.assign(s, { color: color(at), shape: shape(at), dash: [null, "7 4", "2 3"][at % 3] }); });
  if (series.length < 2) return null;
  return figure("Returns while learning", "The mean over replicas, and the band from the lowest to the highest.",
    el("div", {}, lineChart({ series, width: room(2), x: { label: "updates" }, y: { label: "return" }, label: "returns while learning" }), legend(series)),
    () => [["run", "step", "return_mean"], ...series.flatMap((s) => s.points.map(([step, value]) => [s.label, step, value]))]);
}

function chooser() {
  const choose = el("select", { id: "which", onchange: () => { page.run = Number(choose.value); render(); byId("which").focus(); } },
    DATA.runs.map((r, i) => el("option", { value: i, ...(i === page.run ? { selected: "" } : {}) }, r.name)));
  return el("section", { id: "one" }, el("label", { class: "controls" }, el("b", {}, "Look at run"), choose), el("p", {}, verdict(DATA.runs[page.run])));
}

function render() {
  const run = DATA.runs[page.run], several = DATA.runs.length > 1;
  page.maps = [];
  const names = [...new Set(DATA.runs.map((r) => r.summary.data.name))].join(", ");
  layOut({
    title: `${names}: who did what`,
    lead: several ? `${DATA.runs.length} runs: ${DATA.runs.map((r) => r.name).join(", ")}.` : verdict(run),
    sections: [several ? comparisonSection(DATA.runs) : null, several ? chooser() : null, tiles(run),
      dataSection(run), behaviorSection(run), mapSection(run, page), certaintySection(run), confusionSection(run), policySection(run), runSection(run)],
    foot: "The numbers are those of the run's summary.json.",
  });
}

begin(render, () => {
  const old = page.maps[0];
  render();
  const map = page.maps[0];
  if (!old || !map) return;
  map.colorBy = old.colorBy;
  map.controls.querySelector(`[value="${old.colorBy}"]`).checked = true;
  map.draw();
  map.pick(old.picked);
});
