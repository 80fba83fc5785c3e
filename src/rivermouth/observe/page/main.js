/* The page: asks for news every second, and shows them. */
"use strict";

(() => {
  const { format, api, charts, map, panels } = rivermouth;
  const { byId } = format;
  const PAUSE = 1000;
  const MOST = 2000; // batches that are kept

  const state = { key: null, seen: 0, batches: [], page: null, operator: null, range: 0, shape: null, shapes: {}, paused: false };
  rivermouth.state = state;

  async function look() {
    const runs = await api.runs();
    if (!runs.length) return panels.showStatus("waiting");
    if (!runs.some((run) => run.key === state.key)) choose(runs[0].key);
    panels.fill(byId("run"), runs.map((run) => [run.key, titled(run)]), state.key);
    const key = state.key;
    const page = await api.run(key, state.seen);
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
    if (page.seen < state.seen || api.isStatic) state.batches = [];
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
    state.shapes[name] = { version, shapes: await api.shapes(state.key, name) };
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
    byId("title").textContent = `Run ${page.run.name ?? page.run.key}`;
    document.title = `${page.run.name ?? "Monitoring"} · ${format.compact(page.metrics.rows)} rows`;
    byId("failure").hidden = !page.failure;
    if (byId("failure").textContent !== (page.failure ?? "")) byId("failure").textContent = page.failure ?? "";
    byId("counted").textContent = counted(page.metrics);
    panels.showTiles(page.metrics);
    panels.showAdvice(page.advice);
    charts.draw(byId("query-charts"), charts.OF_QUERY, shown());
    charts.draw(byId("correction-charts"), charts.OF_CORRECTIONS, page.corrections);
    showOperator();
    showMap();
  }

  const counted = ({ batches, since_batch: since, missed_batches: missed }) =>
    `${format.count(batches)} batches${since ? ` since batch ${since}` : ""}${missed ? `, without ${format.count(missed)} whose reports were gone` : ""}`;

  function showOperator() {
    const names = Object.keys(state.page.metrics.operators);
    byId("operator-section").hidden = !names.length;
    if (!names.length) return;
    if (!names.includes(state.operator)) state.operator = names[0];
    panels.fill(byId("operator"), names.map((name) => [name, name]), state.operator);
    const operator = state.page.metrics.operators[state.operator];
    const own = shown().filter((batch) => batch.operators[state.operator])
      .map((batch) => ({ at: batch.at, ...batch.operators[state.operator] }));
    charts.draw(byId("operator-charts"), charts.OF_OPERATOR, own);
    panels.showLoads(operator);
    panels.showNumbers(operator);
  }

  function showMap() {
    const name = mapped();
    const shapes = name && state.shapes[name]?.shapes;
    byId("map-section").hidden = !shapes;
    if (!shapes) return;
    byId("h-map").textContent = `Map of ${name}`;
    const events = state.page.events[name];
    byId("h-shapes").textContent = events ? "Shapes by events" : "Shapes by matches";
    map.setShapes(shapes);
    map.setCounts(countsOf(name), state.page.places[name]);
    map.setEvents(events?.newest);
    panels.showEvents(events?.newest ?? []);
    listShapes();
  }

  /* Matches of each shape, or the events of the fence that is called like it. */
  function countsOf(name) {
    const events = state.page.events[name];
    if (!events) return state.page.metrics.operators[name].per_row ?? [];
    return state.shapes[name].shapes.labels.map((label) => events.per_fence[label] ?? 0);
  }

  function listShapes() {
    const name = mapped();
    panels.showShapes(state.shapes[name].shapes, countsOf(name), byId("shape-filter").value, state.shape, (i) => pick(i, true));
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
    byId("theme").textContent = `Theme: ${theme}`;
    byId("theme").dataset.theme = theme;
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
    byId("pause").setAttribute("aria-pressed", String(paused));
    byId("pause").textContent = paused ? "Go on" : "Pause";
  }

  function listen() {
    byId("run").addEventListener("change", () => { choose(byId("run").value); turn(); });
    byId("operator").addEventListener("change", () => { state.operator = byId("operator").value; charts.forget(); fetchShapes().then(show); });
    byId("range").addEventListener("change", (event) => { state.range = Number(event.target.value); show(); });
    byId("shape-filter").addEventListener("input", listShapes);
    byId("pause").addEventListener("click", () => setPaused(!state.paused));
    byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(byId("theme").dataset.theme) + 1) % THEMES.length]));
    dark.addEventListener("change", () => setTheme(byId("theme").dataset.theme));
    map.onChoose(pick);
    new ResizeObserver(charts.fit).observe(byId("main"));
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
      if (api.isStatic) throw error;
      panels.showStatus("lost");
    }
  }

  async function keepLooking() {
    if (!state.paused && !document.hidden) await turn();
    if (!api.isStatic) setTimeout(keepLooking, PAUSE);
  }

  listen();
  setTheme(THEMES.includes(remembered("theme")) ? remembered("theme") : "system");
  byId("pause").hidden = byId("prometheus").hidden = api.isStatic;
  if (api.summary) panels.showSummary(api.summary);
  keepLooking();
})();
