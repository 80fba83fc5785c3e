/* The page: asks for news every second, and shows them. */
"use strict";

(() => {
  const { words, source, charts, map, panels } = rivermouth;
  const { at } = words;
  const PAUSE = 1000;
  const MOST = 2000; // batches that are kept

  const state = { key: null, seen: 0, batches: [], page: null, operator: null, range: 0, shape: null, shapes: {}, paused: false };
  rivermouth.state = state;

  async function look() {
    const runs = await source.runs();
    if (!runs.length) return panels.showStatus("waiting");
    if (!runs.some((run) => run.key === state.key)) choose(runs[0].key);
    panels.fill(at("run"), runs.map((run) => [run.key, titled(run)]), state.key);
    const key = state.key;
    const page = await source.run(key, state.seen);
    if (key !== state.key) return; // another was chosen meanwhile
    take(page);
    await fetchShapes();
    show();
  }

  const titled = (run) => {
    const when = new Date(run.started * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
    return `${run.name ?? run.key.slice(0, 8)} · ${when} · ${run.status}`;
  };

  function take(page) {
    if (page.seen < state.seen || source.isStill) state.batches = [];
    state.batches = [...state.batches, ...page.batches].slice(-MOST);
    state.seen = page.seen;
    state.page = page;
  }

  function choose(key) {
    Object.assign(state, { key, seen: 0, batches: [], page: null, operator: null, shape: null, shapes: {} });
    charts.forget();
  }

  /* The shapes of the operator on the map, once per version of its table. */
  async function fetchShapes() {
    const name = mapped();
    if (!name) return;
    const version = state.page.metrics.operators[name].table?.version ?? 0;
    if (state.shapes[name]?.version === version) return;
    state.shapes[name] = { version, shapes: await source.shapes(state.key, name) };
  }

  /* Whose map is shown: the chosen operator's, or else the first that has one. */
  const mapped = () => {
    const { maps } = state.page;
    return maps.includes(state.operator) ? state.operator : maps[0];
  };

  function shown() {
    if (!state.range) return state.batches;
    const newest = state.batches.at(-1)?.at ?? 0;
    return state.batches.filter((batch) => batch.at >= newest - state.range);
  }

  function show() {
    const { page } = state;
    if (!page) return;
    panels.showStatus(page.run.status);
    at("title").textContent = `Run ${page.run.name ?? page.run.key}`;
    document.title = `${page.run.name ?? "rivermouth"} · ${words.compact(page.metrics.rows)} rows`;
    at("failure").hidden = !page.failure;
    if (at("failure").textContent !== (page.failure ?? "")) at("failure").textContent = page.failure ?? "";
    at("kept").textContent = `${words.count(page.metrics.batches)} batches`;
    panels.showTiles(page.metrics);
    panels.showAdvice(page.advice);
    charts.draw(at("query-charts"), charts.OF_QUERY, shown());
    charts.draw(at("correction-charts"), charts.OF_CORRECTIONS, page.corrections);
    showOperator();
    showMap();
  }

  function showOperator() {
    const names = Object.keys(state.page.metrics.operators);
    at("operator-section").hidden = !names.length;
    if (!names.length) return;
    if (!names.includes(state.operator)) state.operator = names[0];
    panels.fill(at("operator"), names.map((name) => [name, name]), state.operator);
    const operator = state.page.metrics.operators[state.operator];
    const own = shown().filter((batch) => batch.operators[state.operator])
      .map((batch) => ({ at: batch.at, ...batch.operators[state.operator] }));
    charts.draw(at("operator-charts"), charts.OF_OPERATOR, own);
    panels.showLoads(operator);
    panels.showNumbers(operator);
  }

  function showMap() {
    const name = mapped();
    const shapes = name && state.shapes[name]?.shapes;
    at("map-section").hidden = !shapes;
    if (!shapes) return;
    at("h-map").textContent = `Map of ${name}`;
    map.setShapes(shapes);
    map.setCounts(state.page.metrics.operators[name].per_row, state.page.places[name]);
    listShapes();
  }

  function listShapes() {
    const name = mapped();
    const counts = state.page.metrics.operators[name].per_row ?? [];
    panels.showShapes(state.shapes[name].shapes, counts, at("shape-filter").value, state.shape, (i) => pick(i, true));
  }

  function pick(number, near = false) {
    state.shape = number === state.shape ? null : number;
    map.choose(state.shape, near);
    listShapes();
  }

  const THEMES = ["system", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function setTheme(theme) {
    const real = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
    document.documentElement.dataset.theme = real;
    at("theme").textContent = `Theme: ${theme}`;
    at("theme").dataset.theme = theme;
    remember("theme", theme);
    charts.forget();
    show();
    map.redraw();
  }

  /* A report opened from a file may not have a store. */
  function remember(name, value) {
    try { localStorage.setItem(`rivermouth.${name}`, value); } catch { /* then not */ }
  }
  function remembered(name) {
    try { return localStorage.getItem(`rivermouth.${name}`); } catch { return null; }
  }

  function setPaused(paused) {
    state.paused = paused;
    at("pause").setAttribute("aria-pressed", String(paused));
    at("pause").textContent = paused ? "Go on" : "Pause";
  }

  function listen() {
    at("run").addEventListener("change", () => { choose(at("run").value); turn(); });
    at("operator").addEventListener("change", () => { state.operator = at("operator").value; charts.forget(); fetchShapes().then(show); });
    at("range").addEventListener("change", (event) => { state.range = Number(event.target.value); show(); });
    at("shape-filter").addEventListener("input", listShapes);
    at("pause").addEventListener("click", () => setPaused(!state.paused));
    at("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(at("theme").dataset.theme) + 1) % THEMES.length]));
    dark.addEventListener("change", () => setTheme(at("theme").dataset.theme));
    map.onChoose(pick);
    new ResizeObserver(charts.fit).observe(at("main"));
    document.addEventListener("keydown", (event) => {
      if (event.key !== " " || event.target.closest("button, select, input, canvas, [tabindex='0']")) return;
      event.preventDefault();
      setPaused(!state.paused);
    });
  }

  /* A server that does not answer is a run that has gone: say so, and go on asking. */
  async function turn() {
    try {
      await look();
    } catch (error) {
      if (source.isStill) throw error;
      panels.showStatus("lost");
    }
  }

  async function keepLooking() {
    if (!state.paused && !document.hidden) await turn();
    if (!source.isStill) setTimeout(keepLooking, PAUSE);
  }

  listen();
  setTheme(THEMES.includes(remembered("theme")) ? remembered("theme") : "system");
  at("pause").hidden = at("prometheus").hidden = source.isStill;
  if (source.summary) panels.showSummary(source.summary);
  keepLooking();
})();
