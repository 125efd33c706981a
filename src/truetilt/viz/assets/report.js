"use strict";
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const { sizes, courses: C, weights: W, trees } = D;
  const LEFT = 58, RIGHT = 64;
  const at = (id) => document.getElementById(id);
  const sig = (v, d = 5) => (v === null ? "−∞" : String(Number(v.toPrecision(d))).replace("-", "−"));
  const percent = (v) => sig(100 * v, 3) + " %";
  let tree = 0, slid = null;

  function node(name, attributes, parent, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.appendChild(made);
    return made;
  }

  // Round numbers that cut an interval into about `count` parts.
  function ticks(low, high, count) {
    const rough = (high - low) / count, ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * ten).find((s) => s >= rough);
    const out = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) out.push(Number(v.toPrecision(12)));
    return out;
  }

  function canvas(id, height, left = LEFT, right = RIGHT) {
    const box = at(id), width = Math.max(240, box.clientWidth);
    box.textContent = "";
    const narrow = width < 500;
    const inner = { left: narrow ? Math.min(left, 44) : left, right: narrow ? Math.min(right, 30) : right };
    const svg = node("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, box);
    svg.setAttribute("aria-label", box.closest("figure").querySelector("b").textContent);
    return { svg, width, height, ...inner, x: (share) => inner.left + share * (width - inner.left - inner.right) };
  }

  const byStep = (k, step) => k.x(sizes.last ? step / sizes.last : 0);
  const path = (points) => points.map(([x, y], i) => (i ? "L" : "M") + x.toFixed(1) + " " + y.toFixed(1)).join("");

  // A curve with gaps where there is no number.
  function curve(k, xs, ys, y, kind) {
    let run = [];
    const flush = () => { if (run.length) node("path", { class: kind, d: path(run) }, k.svg); run = []; };
    xs.forEach((x, i) => (ys[i] === null ? flush() : run.push([byStep(k, x), y(ys[i])])));
    flush();
  }

  function stepAxis(k, bottom) {
    for (const step of ticks(0, sizes.last || 1, k.width < 500 ? 4 : 8).filter((v) => Number.isInteger(v) && v > 0))
      node("text", { x: byStep(k, step), y: bottom + 16, "text-anchor": "middle" }, k.svg, step);
    node("text", { x: k.left - 8, y: bottom + 16, "text-anchor": "end" }, k.svg, "step");
    const snap = slid === null ? null : Number(slid);
    if (snap !== null) node("line", { class: "mark", x1: byStep(k, snap), x2: byStep(k, snap), y1: 4, y2: bottom }, k.svg);
    node("line", { class: "cursor", y1: 4, y2: bottom }, k.svg);
  }

  function levels(k, values, y, words) {
    for (const v of values) {
      node("line", { class: "rule", x1: k.left, x2: k.width - k.right, y1: y(v), y2: y(v) }, k.svg);
      node("text", { x: k.left - 8, y: y(v) + 4, "text-anchor": "end" }, k.svg, words(v));
    }
  }

  function drawEss() {
    const k = canvas("c-ess", 190), bottom = 162, y = (v) => bottom - v * (bottom - 10);
    levels(k, [0, 0.25, 0.5, 0.75, 1], y, (v) => 100 * v + " %");
    if (sizes.threshold) {
      node("line", { class: "dash", x1: k.left, x2: k.width - k.right, y1: y(sizes.threshold), y2: y(sizes.threshold) }, k.svg);
      at("k-threshold").hidden = false;
    }
    if (sizes.populations > 1) C.ess_each.forEach((ys) => curve(k, C.steps, ys, y, "each"));
    curve(k, C.steps, C.ess, y, "mean");
    stepAxis(k, bottom);
    follow(k, "c-ess");
  }

  function drawLogZ() {
    const all = [C.log_z, C.low, C.high, ...C.log_z_each].flat().filter((v) => v !== null);
    let low = Math.min(...all), high = Math.max(...all);
    if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
    const k = canvas("c-logz", 210), bottom = 182;
    const y = (v) => bottom - 6 - ((v - low) / (high - low)) * (bottom - 20);
    levels(k, ticks(low, high, 4), y, (v) => sig(v, 4));
    if (C.low.length) {
      const known = C.steps.map((s, i) => i).filter((i) => C.low[i] !== null && C.high[i] !== null);
      const up = known.map((i) => [byStep(k, C.steps[i]), y(C.high[i])]);
      const down = known.map((i) => [byStep(k, C.steps[i]), y(C.low[i])]).reverse();
      node("path", { class: "band", d: path([...up, ...down]) + "Z" }, k.svg);
    }
    if (sizes.populations > 1) C.log_z_each.forEach((ys) => curve(k, C.steps, ys, y, "each"));
    curve(k, C.steps, C.log_z, y, "mean");
    const end = C.log_z[C.log_z.length - 1];
    if (end !== null) {
      node("circle", { class: "dot0", cx: byStep(k, sizes.last), cy: y(end), r: 4.5 }, k.svg);
      if (k.right > 40) node("text", { x: byStep(k, sizes.last) + 9, y: y(end) + 4 }, k.svg, sig(end, 5));
    }
    stepAxis(k, bottom);
    follow(k, "c-logz");
  }

  // The genealogy: time to the right, families kept together, so that no two lines cross.
  const treeHeight = () => Math.min(440, Math.max(170, 9 * sizes.particles));

  function drawTree() {
    const T = trees[tree], k = canvas("c-tree", treeHeight() + 34), top = 16, bottom = treeHeight();
    const y = (place) => top + ((place + 0.5) / sizes.particles) * (bottom - top);
    const point = (column, place) => [byStep(k, T.steps[column]), y(place)];
    const d = ([, start, places]) => {
      let out = "";
      places.forEach((place, i) => {
        const [px, py] = point(start + i, place);
        if (!i) { out = `M${px.toFixed(1)} ${py.toFixed(1)}`; return; }
        const [qx] = point(start + i - 1, places[i - 1]), [, qy] = point(start + i - 1, places[i - 1]);
        const middle = ((px + qx) / 2).toFixed(1);
        out += px - qx > 4 && py !== qy ? `C${middle} ${qy.toFixed(1)} ${middle} ${py.toFixed(1)} ${px.toFixed(1)} ${py.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`;
      });
      return out;
    };
    T.chains.filter((c) => !c[3]).forEach((chain) => {
      node("path", { class: "dead", d: d(chain) }, k.svg);
      const [px, py] = point(chain[1] + chain[2].length - 1, chain[2][chain[2].length - 1]);
      node("circle", { class: "tip", cx: px, cy: py, r: 1.6 }, k.svg);
    });
    const drawn = T.chains.map((chain) => (chain[3] ? node("path", { class: "alive", d: d(chain), "stroke-width": (1 + 7 * Math.sqrt(chain[3] / sizes.particles) * (chain[3] > 1)).toFixed(2) }, k.svg) : null));
    drawEnds(k, T, y);
    drawRedraws(k, T);
    stepAxis(k, bottom);
    pointAtLines(k, T, drawn, y);
    noteTree(T);
  }

  function drawEnds(k, T, y) {
    const heaviest = Math.max(...T.ends.map((e) => e[1]), 1e-300);
    const last = T.steps.length - 1, thick = Math.max(1.2, Math.min(5, 0.7 * (y(1) - y(0))));
    const places = new Map(T.chains.filter((c) => c[3] && c[1] + c[2].length - 1 === last).map((c) => [c[4], c[2][c[2].length - 1]]));
    for (const [particle, share] of T.ends) {
      const bar = node("rect", { class: "end", x: k.width - k.right + 5, y: y(places.get(particle)) - thick / 2, height: thick, width: Math.max(0.5, (share / heaviest) * (k.right - 9)) }, k.svg);
      bar.dataset.particle = particle;
    }
    node("text", { x: k.width - 4, y: 9, "text-anchor": "end" }, k.svg, k.right > 40 ? "weight" : "");
    let free = -20;
    for (const chain of T.chains.filter((c) => c[3] && c[0] < 0 && c[1] === 0).sort((a, b) => a[2][0] - b[2][0])) {
      const spot = y(chain[2][0]);
      if (spot - free < 12) continue;
      node("text", { x: k.left - 8, y: spot + 4, "text-anchor": "end" }, k.svg, "#" + chain[2][0]);
      free = spot;
    }
  }

  function drawRedraws(k, T) {
    T.lost.forEach((lost, column) => {
      if (!lost) return;
      const x = byStep(k, T.steps[column]), size = 2 + 4 * Math.sqrt(lost / sizes.particles);
      node("path", { class: "tick", d: `M${x - size} ${3}H${x + size}L${x} ${3 + 1.5 * size}Z` }, k.svg);
    });
  }

  function noteTree(T) {
    const shown = T.ends.length, parts = [];
    if (shown < sizes.particles) parts.push(`${shown} of ${sizes.particles} lines that reach the end`);
    const dead = T.chains.filter((c) => !c[3]).length;
    if (dead < T.dying) parts.push(`${dead} of ${T.dying} that die`);
    const drawn = parts.length ? ` Drawn are ${parts.join(" and ")}, so that lines can be told apart.` : "";
    const some = trees.length < sizes.populations ? ` ${trees.length} of ${sizes.populations} populations can be chosen.` : "";
    const kept = T.families[T.families.length - 1];
    const told = `${kept} of ${sizes.particles} first draws lead to the end` + (T.dying ? "" : "; nothing was resampled");
    at("tree-note").textContent = `${told}.${drawn}${some}`;
  }

  // The line nearest to the pointer, from its first draw to its last descendants.
  function pointAtLines(k, T, drawn, y) {
    const box = at("c-tree");
    box.onpointermove = (event) => {
      const spot = k.svg.getBoundingClientRect(), px = event.clientX - spot.left, py = event.clientY - spot.top;
      const step = ((px - k.left) / (k.width - k.left - k.right)) * sizes.last;
      let best = null, least = 1e9;
      T.chains.forEach((chain, number) => {
        if (!chain[3]) return;
        for (let i = 1; i < chain[2].length; i++) {
          const a = T.steps[chain[1] + i - 1], b = T.steps[chain[1] + i];
          if (step < a || step > b) continue;
          const share = b > a ? (step - a) / (b - a) : 0;
          const off = Math.abs(py - y(chain[2][i - 1] + share * (chain[2][i] - chain[2][i - 1])));
          if (off < least) { least = off; best = number; }
        }
      });
      if (px > k.width - k.right) best = nearestEnd(T, py, y);
      light(k, T, drawn, best);
      showStep(Math.round(Math.min(sizes.last, Math.max(0, step))));
      if (best !== null) tip(event, lineWords(T, best));
    };
    box.onpointerleave = () => { light(k, T, drawn, null); clear(); };
  }

  function nearestEnd(T, py, y) {
    const last = T.steps.length - 1, off = (c) => Math.abs(py - y(c[2][c[2].length - 1]));
    const ends = T.chains.map((c, i) => i).filter((i) => T.chains[i][3] && T.chains[i][1] + T.chains[i][2].length - 1 === last);
    return ends.reduce((a, b) => (a === null || off(T.chains[b]) < off(T.chains[a]) ? b : a), null);
  }

  function related(T, chosen) {
    const hit = new Set([chosen]);
    for (let up = T.chains[chosen][0]; up >= 0; up = T.chains[up][0]) hit.add(up);
    T.chains.forEach((chain, number) => { if (chain[3] && (chain[0] === chosen || (hit.has(chain[0]) && descends(T, chain[0], chosen)))) hit.add(number); });
    return hit;
  }

  function descends(T, from, chosen) {
    for (let up = from; up >= 0; up = T.chains[up][0]) if (up === chosen) return true;
    return false;
  }

  function light(k, T, drawn, chosen) {
    k.svg.classList.toggle("hot", chosen !== null);
    const hit = chosen === null ? new Set() : related(T, chosen);
    drawn.forEach((one, number) => one && one.classList.toggle("hit", hit.has(number)));
    const last = T.steps.length - 1;
    const ends = new Set([...hit].map((i) => T.chains[i]).filter((c) => c[1] + c[2].length - 1 === last).map((c) => String(c[4])));
    k.svg.querySelectorAll(".end").forEach((bar) => bar.classList.toggle("hit", ends.has(bar.dataset.particle)));
  }

  function lineWords(T, chosen) {
    const chain = T.chains[chosen];
    let up = chosen;
    while (T.chains[up][0] >= 0) up = T.chains[up][0];
    const last = T.steps.length - 1, ends = chain[1] + chain[2].length - 1 === last;
    const root = `first draw #${T.chains[up][2][0]}`;
    if (!ends) return `From ${root}\nleads to ${chain[3]} particles of the end\nbranches at step ${T.steps[chain[1] + chain[2].length - 1]}`;
    const weight = (T.ends.find((e) => e[0] === chain[4]) || [0, 0])[1];
    return `Particle ${chain[4]}, from ${root}\nweight ${percent(weight)} of its population\nits own line since step ${T.steps[chain[1]]}`;
  }

  function drawFamilies() {
    const T = trees[tree], k = canvas("c-families", 116), bottom = 90, y = (v) => bottom - (v / sizes.particles) * (bottom - 12);
    levels(k, [0, sizes.particles], y, (v) => v);
    let d = "";
    T.families.forEach((count, column) => {
      const x = byStep(k, T.steps[column]).toFixed(1), h = y(count).toFixed(1);
      d += column ? `H${x}V${h}` : `M${x} ${h}`;
    });
    node("path", { class: "area", d: `${d}V${bottom}H${k.left}Z` }, k.svg);
    node("path", { class: "mean", d }, k.svg);
    const end = T.families[T.families.length - 1];
    node("text", { x: k.width - k.right + 8, y: y(end) + 4 }, k.svg, end);
    stepAxis(k, bottom);
    follow(k, "c-families");
  }

  function drawWeights() {
    const k = canvas("c-bars", 210, 44, 8), bottom = 182, top = Math.max(...W.weights, 1);
    const y = (v) => bottom - (v / top) * (bottom - 10), wide = (k.width - k.left - k.right) / W.ranks.length;
    levels(k, ticks(0, top, 4), y, (v) => sig(v, 3) + "×");
    W.weights.forEach((v, i) => node("rect", { class: "columns", x: k.left + i * wide, width: Math.max(0.6, wide - (wide > 4 ? 1 : 0)), y: y(v), height: Math.max(0.5, bottom - y(v)) }, k.svg));
    node("line", { class: "dash", x1: k.left, x2: k.width - k.right, y1: y(1), y2: y(1) }, k.svg);
    node("text", { x: k.left, y: bottom + 16 }, k.svg, "heaviest");
    node("text", { x: k.width - k.right, y: bottom + 16, "text-anchor": "end" }, k.svg, `lightest of ${W.count.toLocaleString("en")}`);
    hover("c-bars", k, (share) => {
      const i = Math.min(W.ranks.length - 1, Math.floor(share * W.ranks.length));
      return `Rank ${W.ranks[i] + 1} of ${W.count}\n${sig(W.weights[i], 4)} × an equal share`;
    });
    drawMass();
  }

  function drawMass() {
    const k = canvas("c-mass", 210, 44, 14), bottom = 182, y = (v) => bottom - v * (bottom - 10);
    levels(k, [0, 0.5, 1], y, (v) => 100 * v + " %");
    const points = W.mass_ranks.map((rank, i) => [k.x(rank / W.count), y(W.mass[i])]);
    node("path", { class: "area", d: path(points) + `L${k.x(1)} ${bottom}L${k.x(0)} ${bottom}Z` }, k.svg);
    node("path", { class: "dash", d: path([[k.x(0), y(0)], [k.x(1), y(1)]]) }, k.svg);
    node("path", { class: "mean", d: path(points) }, k.svg);
    for (const v of [0, 0.5, 1]) node("text", { x: k.x(v), y: bottom + 16, "text-anchor": v === 0 ? "start" : v === 1 ? "end" : "middle" }, k.svg, v === 1 ? "100 % of particles" : 100 * v + " %");
    hover("c-mass", k, (share) => {
      const rank = share * W.count, i = W.mass_ranks.findIndex((r) => r >= rank);
      return `The heaviest ${W.mass_ranks[i].toLocaleString("en")} particles\nhold ${percent(W.mass[i])} of the mass`;
    });
    at("weight-words").textContent = `Half of the mass lies on ${W.half.toLocaleString("en")} of ${W.count.toLocaleString("en")} particles; the heaviest holds ${percent(W.heaviest)}.`;
  }

  // Pointing: one cursor for all charts over steps.
  function tip(event, words) {
    const box = at("tip");
    box.textContent = words;
    box.hidden = false;
    const wide = box.offsetWidth, room = document.documentElement.clientWidth;
    box.style.left = Math.max(6, Math.min(room - wide - 6, event.clientX + 14)) + "px";
    box.style.top = (event.clientY > 130 ? event.clientY - box.offsetHeight - 12 : event.clientY + 18) + "px";
  }

  function clear() {
    at("tip").hidden = true;
    document.querySelectorAll(".cursor").forEach((line) => line.classList.remove("on"));
  }

  function showStep(step) {
    document.querySelectorAll("#course .chart svg").forEach((svg) => {
      const line = svg.querySelector(".cursor"), width = svg.width.baseVal.value, narrow = width < 500;
      const left = narrow ? 44 : LEFT, right = narrow ? 30 : RIGHT;
      const x = left + (sizes.last ? step / sizes.last : 0) * (width - left - right);
      line.setAttribute("x1", x); line.setAttribute("x2", x); line.classList.add("on");
    });
  }

  function nearestTold(step) {
    return C.steps.reduce((best, s, i) => (Math.abs(s - step) < Math.abs(C.steps[best] - step) ? i : best), 0);
  }

  function follow(k, id) {
    const box = at(id);
    box.onpointermove = (event) => {
      const spot = k.svg.getBoundingClientRect();
      const step = ((event.clientX - spot.left - k.left) / (k.width - k.left - k.right)) * sizes.last;
      const i = nearestTold(step), each = C.ess_each.map((ys) => ys[i]).filter((v) => v !== null);
      showStep(C.steps[i]);
      const T = trees[tree], column = T.steps.filter((s) => s <= C.steps[i]).length - 1;
      const spread = C.low.length && C.low[i] !== null ? `\n95 %: ${sig(C.low[i])} to ${sig(C.high[i])}` : "";
      const range = each.length > 1 ? `, from ${percent(Math.min(...each))} to ${percent(Math.max(...each))}` : "";
      tip(event, `Step ${C.steps[i]}, t = ${sig(C.times[i], 3)}\nESS ${percent(C.ess[i])}${range}\nlog Z ${sig(C.log_z[i])}${spread}\n${T.families[column]} first draws left in population ${T.population}`);
    };
    box.onpointerleave = clear;
  }

  function hover(id, k, words) {
    const box = at(id);
    box.onpointermove = (event) => {
      const share = (event.clientX - k.svg.getBoundingClientRect().left - k.left) / (k.width - k.left - k.right);
      tip(event, words(Math.min(1, Math.max(0, share))));
    };
    box.onpointerleave = clear;
  }

  // Copying.
  const table = (names, columns) => [names.join(","), ...columns[0].map((_, i) => columns.map((c) => (c[i] === null ? "" : c[i])).join(","))].join("\n");
  const CSV = {
    ess: () => table(["step", "t", "mean", ...C.populations.map((k) => "population_" + k)], [C.steps, C.times, C.ess, ...C.ess_each]),
    log_z: () => table(["step", "t", "log_z", ...(C.low.length ? ["low", "high"] : []), ...C.populations.map((k) => "population_" + k)], [C.steps, C.times, C.log_z, ...(C.low.length ? [C.low, C.high] : []), ...C.log_z_each]),
    weights: () => table(["rank", "multiple_of_equal_share"], [W.ranks.map((r) => r + 1), W.weights]),
    tree: () => table(["step", "lines_lost", "first_draws_left"], [trees[tree].steps, trees[tree].lost, trees[tree].families]),
  };

  function copied(button, text) {
    const plain = () => {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "copying";
      document.body.appendChild(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    };
    const said = () => {
      button.classList.add("done");
      const tipAt = button.getBoundingClientRect();
      tip({ clientX: tipAt.left, clientY: tipAt.top }, "copied");
      setTimeout(() => { button.classList.remove("done"); clear(); }, 900);
    };
    if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(said, () => { plain(); said(); });
    else { plain(); said(); }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy], button[data-csv]");
    if (button) copied(button, button.dataset.csv ? CSV[button.dataset.csv]() : button.dataset.copy);
  });

  // Light and dark.
  at("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = root.dataset.theme || (dark ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });

  // The step slider.
  const frames = [...document.querySelectorAll(".frame")], range = at("step");
  function slide(number) {
    frames.forEach((frame, i) => { frame.hidden = i !== number; });
    slid = frames[number].dataset.step;
    at("step-words").textContent = `step ${slid} of ${sizes.last}, t = ${frames[number].dataset.time}`;
    document.querySelectorAll("#course .mark").forEach((line) => {
      const svg = line.ownerSVGElement, width = svg.width.baseVal.value, narrow = width < 500, left = narrow ? 44 : LEFT;
      const x = left + (sizes.last ? slid / sizes.last : 0) * (width - left - (narrow ? 30 : RIGHT));
      line.setAttribute("x1", x); line.setAttribute("x2", x);
    });
  }
  if (range) {
    let playing = null;
    const stop = () => { clearInterval(playing); playing = null; at("play").textContent = "▶"; };
    range.addEventListener("input", () => { stop(); slide(Number(range.value)); });
    at("play").addEventListener("click", () => {
      if (playing) return stop();
      if (Number(range.value) === frames.length - 1) range.value = 0;
      slide(Number(range.value));
      at("play").textContent = "❚❚";
      playing = setInterval(() => {
        if (Number(range.value) === frames.length - 1) return stop();
        range.value = Number(range.value) + 1;
        slide(Number(range.value));
      }, 550);
      return undefined;
    });
    slid = frames[frames.length - 1].dataset.step;
    slide(frames.length - 1);
  }

  const pick = at("tree");
  if (pick) {
    trees.forEach((T, i) => pick.add(new Option(T.population, i)));
    pick.addEventListener("change", () => { tree = Number(pick.value); drawTree(); drawFamilies(); });
  }

  function draw() { drawEss(); drawLogZ(); drawTree(); drawFamilies(); drawWeights(); }
  draw();
  let wide = document.documentElement.clientWidth, later = null;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth === wide) return;
    wide = document.documentElement.clientWidth;
    clearTimeout(later);
    later = setTimeout(draw, 120);
  });
  document.documentElement.dataset.drawn = Math.round(performance.now());
})();
