"use strict";
// The map of trajectories, and what one of them did.

const PICK = 22; // pixels within which a pointer finds a trajectory

class TrajectoryMap {
  constructor(fit) {
    this.fit = fit;
    this.shown = fit.shown;
    this.many = fit.shown.code.length;
    this.xy = floats(fit.places.xy);
    this.returns = floats(fit.shown.return);
    this.probability = floats(fit.shown.probability);
    this.sources = fit.shown.source_names;
    this.unexplained = new Set(fit.unexplained || []);
    const order = Array.from(this.returns.keys()).sort((a, b) => this.returns[a] - this.returns[b]);
    this.rank = new Float32Array(this.many);
    order.forEach((m, place) => (this.rank[m] = this.many > 1 ? place / (this.many - 1) : 1));
    this.colorBy = "code";
    this.picked = this.near = -1;
    if (fit.over_time) {
      this.begin = [0];
      for (const n of fit.over_time.points) this.begin.push(this.begin.at(-1) + n);
      this.actions = bytes(fit.over_time.actions);
      this.rewards = bytes(fit.over_time.reward);
    }
    if (fit.log_probs) this.logProbs = floats(fit.log_probs);
    this.build();
  }

  build() {
    const ways = [["code", "behavior"], ["return", "return"], ["probability", "certainty"]];
    if (this.sources.length) ways.push(["source", "source"]);
    this.canvas = el("canvas", { tabindex: 0, role: "application", id: "map-canvas",
      "aria-label": "Map of trajectories. Arrow keys move to the next one, Enter shows it." });
    this.tip = el("div", { class: "tip", hidden: "" });
    this.legend = el("div");
    this.plot = el("div", {}, el("div", { class: "stage" }, this.canvas, this.tip), this.legend);
    this.detail = el("div", { class: "detail", id: "detail" }, el("p", { class: "note" },
      "Click a trajectory, or move to one with the arrow keys and press Enter: its return, its log-probability under every behavior and its actions will show here."));
    this.spoken = el("div", { class: "silent", "aria-live": "polite" });
    const go = el("input", { type: "number", min: 0, id: "go", onchange: () => this.pick(this.shown.trajectory.indexOf(Number(go.value))) });
    this.controls = el("div", { class: "controls" },
      el("fieldset", {}, el("legend", {}, "Color by"), ways.map(([value, label]) => el("label", {},
        el("input", { type: "radio", name: "color", value, ...(value === this.colorBy ? { checked: "" } : {}),
          onchange: () => { this.colorBy = value; this.draw(); } }), label))),
      el("label", {}, "Go to trajectory ", go));
    this.canvas.addEventListener("pointermove", (e) => this.hover(this.at(e)));
    this.canvas.addEventListener("pointerleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (e) => this.pick(this.at(e)));
    this.canvas.addEventListener("keydown", (e) => this.key(e));
  }

  // Where things are, in pixels of the page.
  lay() {
    const width = this.canvas.parentElement.clientWidth || room();
    const height = Math.round(Math.min(560, Math.max(300, width * 0.8)));
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: height * ratio });
    this.canvas.style.height = `${height}px`;
    const others = [...this.fit.places.behaviors, ...(this.fit.places.policy || [])];
    const xs = others.map((p) => p[0]), ys = others.map((p) => p[1]);
    for (let m = 0; m < this.many; m++) { xs.push(this.xy[2 * m]); ys.push(this.xy[2 * m + 1]); }
    this.sx = scale(range(xs), [22, width - 22]);
    this.sy = scale(range(ys), [height - 22, 22]);
    this.size = { width, height, ratio, r: this.many > 1200 || width < 420 ? 3 : 4 };
  }
  place(m) { return [this.sx(this.xy[2 * m]), this.sy(this.xy[2 * m + 1])]; }

  style(m) {
    if (this.colorBy === "return") return ["circle", viridis(this.rank[m])];
    if (this.colorBy === "probability") return ["circle", viridis(2 * this.probability[m] - 1)];
    const i = this.colorBy === "source" ? this.shown.source[m] : this.shown.code[m];
    return [shape(i), color(i)];
  }

  draw() {
    if (!this.size) this.lay();
    const pen = this.canvas.getContext("2d"), { width, height, ratio, r } = this.size;
    const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ring"), paper = style.getPropertyValue("--paper");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = paper;
    pen.fillRect(0, 0, width, height);
    const paths = Object.fromEntries(SHAPES.map((s) => [s, new Path2D(outline(s, r))]));
    const put = (path, x, y, paint, edge, line) => {
      pen.setTransform(ratio, 0, 0, ratio, ratio * x, ratio * y);
      if (paint) { pen.fillStyle = paint; pen.fill(path); }
      if (edge) { pen.strokeStyle = edge; pen.lineWidth = line; pen.stroke(path); }
    };
    pen.globalAlpha = 0.85;
    // Both ends of viridis are hard to see, one on black and one on white paper.
    const graded = this.colorBy === "return" || this.colorBy === "probability";
    const edge = graded ? style.getPropertyValue("--soft") : paper, line = graded ? 0.8 : 0.4;
    for (let m = 0; m < this.many; m++) {
      const [name, paint] = this.style(m);
      put(paths[name], ...this.place(m), paint, edge, line);
    }
    pen.globalAlpha = 1;
    const open = new Path2D(outline("circle", r + 3));
    for (const m of this.unexplained) put(open, ...this.place(m), null, ink, 1);
    const cross = new Path2D(outline("cross", 8)), star = new Path2D(outline("star", 11));
    this.fit.places.behaviors.forEach(([x, y]) => put(cross, this.sx(x), this.sy(y), ink, paper, 2));
    (this.fit.places.policy || []).forEach(([x, y]) => put(star, this.sx(x), this.sy(y), "#D55E00", ink, 1.5));
    for (const [m, line] of [[this.near, 1.5], [this.picked, 3]])
      if (m >= 0) put(new Path2D(outline("circle", r + 5)), ...this.place(m), null, ink, line);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = "600 13px system-ui, sans-serif";
    pen.lineWidth = 3.5;
    this.fit.places.behaviors.forEach(([x, y], code) => {
      pen.strokeStyle = paper; pen.fillStyle = ink;
      pen.strokeText(String(code), this.sx(x) + 10, this.sy(y) - 8);
      pen.fillText(String(code), this.sx(x) + 10, this.sy(y) - 8);
    });
    this.legend.replaceChildren(this.key_());
  }

  key_() {
    const ink = "currentColor";
    const marks = [{ label: "behavior, with its number", shape: "cross", color: ink }];
    if (this.fit.places.policy) marks.push({ label: "the policy", shape: "star", color: "#D55E00" });
    if (this.unexplained.size) marks.push({ label: "ring: explained by no behavior", shape: "circle", color: ink });
    if (this.colorBy === "return") {
      const sorted = Array.from(this.returns).sort((a, b) => a - b), last = sorted.length - 1;
      const stops = [0, 0.25, 0.5, 0.75, 1];
      return legend([...stops.map((s) => ({ label: short(Number(sorted[Math.round(s * last)].toPrecision(3))), shape: "circle", color: viridis(s) })), ...marks]);
    }
    if (this.colorBy === "probability")
      return legend([...[0.5, 0.75, 1].map((p) => ({ label: `${p === 0.5 ? "at most " : ""}${percent(p, 0)}`, shape: "circle", color: viridis(2 * p - 1) })), ...marks]);
    const codes = [...new Set(this.shown.code)].sort((a, b) => a - b);
    const items = this.colorBy === "source"
      ? this.sources.map((label, i) => ({ label, shape: shape(i), color: color(i) }))
      : codes.map((i) => ({ label: `behavior ${i}`, shape: shape(i), color: color(i) }));
    return legend([...items, ...marks]);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, nearest = PICK ** 2;
    for (let m = 0; m < this.many; m++) {
      const [a, b] = this.place(m), d = (a - x) ** 2 + (b - y) ** 2;
      if (d < nearest) { nearest = d; best = m; }
    }
    return best;
  }

  say(m) {
    const source = this.shown.source[m];
    return [`trajectory ${this.shown.trajectory[m]}`, `behavior ${this.shown.code[m]} (${percent(this.probability[m])})`,
      source >= 0 ? `source ${this.sources[source]}` : null,
      `return ${short(Number(this.returns[m].toPrecision(5)))}, ${plural(this.shown.length[m], "step")}`].filter(Boolean);
  }

  hover(m) {
    if (m === this.near) return;
    this.near = m;
    this.tip.hidden = m < 0;
    if (m >= 0) {
      const [x, y] = this.place(m), left = x > this.size.width / 2;
      this.tip.textContent = this.say(m).join("\n");
      Object.assign(this.tip.style, { top: `${Math.min(y + 10, this.size.height - 90)}px`,
        left: left ? "" : `${x + 14}px`, right: left ? `${this.size.width - x + 14}px` : "" });
    }
    this.draw();
  }

  key(event) {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (way) {
      event.preventDefault();
      this.hover(this.beside(this.near >= 0 ? this.near : this.picked, way));
      this.spoken.textContent = this.say(this.near).join(", ");
    } else if ((event.key === "Enter" || event.key === " ") && this.near >= 0) {
      event.preventDefault();
      this.pick(this.near);
    } else if (event.key === "Escape") this.hover(-1);
  }

  // The nearest trajectory in a direction; the same one where there is none.
  beside(from, [dx, dy]) {
    if (from < 0) return 0;
    const [x, y] = this.place(from);
    let best = from, least = Infinity;
    for (let m = 0; m < this.many; m++) {
      const [a, b] = this.place(m), along = (a - x) * dx + (b - y) * dy;
      const aside = Math.abs((a - x) * dy) + Math.abs((b - y) * dx);
      if (along > 0.5 && aside <= along && along + 2 * aside < least) { least = along + 2 * aside; best = m; }
    }
    return best;
  }

  pick(m) {
    if (m < 0) return;
    this.picked = m;
    this.draw();
    this.detail.replaceChildren(...this.about(m));
    this.spoken.textContent = this.say(m).join(", ");
  }

  about(m) {
    const source = this.shown.source[m], better = (this.returns.filter((r) => r <= this.returns[m]).length / this.many) * 100;
    const pairs = [["behavior", `${this.shown.code[m]}, with probability ${percent(this.probability[m], 2)}`],
      ["return", `${short(Number(this.returns[m].toPrecision(5)))}, at least that of ${better.toFixed(0)}% of those shown`],
      ["length", plural(this.shown.length[m], "step")]];
    if (source >= 0) pairs.push(["source", this.sources[source]]);
    if (this.unexplained.has(m)) pairs.push(["beware", "no behavior explains this trajectory"]);
    const id = this.shown.trajectory[m];
    const parts = [el("h3", { id: "picked" }, `Trajectory ${id}`), facts(pairs)];
    const width = Math.max(240, (this.detail.clientWidth || 360) - (window.innerWidth <= 820 ? 22 : 34));
    if (this.logProbs) parts.push(this.likelihoods(m, width));
    if (this.actions) parts.push(this.overTime(m, width));
    if (!this.actions) parts.push(el("p", { class: "note" }, "Its actions and log-probabilities need the data set: manyhands report RUN --data DATA."));
    return parts;
  }

  likelihoods(m, width) {
    const k = this.fit.k, codes = this.fit.behaviors.map((row) => row.code);
    const rows = codes.map((code) => ({ label: `behavior ${code}`, value: this.logProbs[m * k + code], color: color(code), shape: shape(code), text: fixed(this.logProbs[m * k + code]) }));
    rows.sort((a, b) => b.value - a.value);
    // Those that are hopeless would squeeze the others together.
    const best = rows[0].value, low = Math.max(rows.at(-1).value, best - 12);
    return figure(`Trajectory ${this.shown.trajectory[m]}: log-probability`,
      "Nats a step under every behavior, the most probable first. The further the first is from the second, the surer the answer" + (rows.at(-1).value < low ? "; those cut off at the left are further away than is drawn." : "."),
      el("div", {}, dotChart({ rows: rows.slice(0, 12).map((r) => ({ ...r, value: Math.max(low, r.value) })), width, label: "log-probability under every behavior" })),
      () => [["behavior", "log_prob"], ...rows.map((r) => [r.label, r.value])]);
  }

  overTime(m, width) {
    const time = this.fit.over_time, from = this.begin[m], to = this.begin[m + 1], n = to - from, d = time.dimensions;
    const step = (i) => (n > 1 ? Math.round((i * (this.shown.length[m] - 1)) / (n - 1)) : 0);
    const value = (i, j) => time.low[j] + (this.actions[(from + i) * d + j] / 255) * (time.high[j] - time.low[j]);
    const reward = (i) => time.reward_low + (this.rewards[from + i] / 255) * (time.reward_high - time.reward_low);
    const indexes = Array.from({ length: n }, (_, i) => i), columns = d > 2 ? 2 : 1, each = (width - 12 * (columns - 1)) / columns;
    const small = (points, label, y) => el("div", {}, el("h4", { class: "label" }, label),
      lineChart({ width: each, height: 92, label, series: [{ points, color: color(this.shown.code[m]) }], y, x: {} }));
    const charts = [small(indexes.map((i) => [step(i), reward(i)]), "reward so far", {}),
      ...Array.from({ length: d }, (_, j) => small(indexes.map((i) => [step(i), value(i, j)]), `action ${j}`, { range: [time.low[j], time.high[j]] }))];
    const note = d < time.of_dimensions ? ` The first ${d} of ${time.of_dimensions} action dimensions.` : "";
    return figure(`Trajectory ${this.shown.trajectory[m]}: over time`,
      `The reward so far, and its actions over time between their bounds; at most ${time.most_points} steps of a trajectory are drawn.${note}`,
      el("div", { class: "actions", style: `grid-template-columns: repeat(${columns}, minmax(0, 1fr))` }, charts),
      () => [["step", "reward_so_far", ...Array.from({ length: d }, (_, j) => `action_${j}`)],
        ...indexes.map((i) => [step(i), reward(i), ...Array.from({ length: d }, (_, j) => value(i, j))])]);
  }

  table() {
    return [["trajectory", "code", "probability", "return", "length", "source", "x", "y"],
      ...this.shown.code.map((code, m) => [this.shown.trajectory[m], code, this.probability[m], this.returns[m], this.shown.length[m],
        this.shown.source[m] >= 0 ? this.sources[this.shown.source[m]] : "", this.xy[2 * m], this.xy[2 * m + 1]])];
  }
}
