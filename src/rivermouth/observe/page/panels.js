/* The panels that are not charts: tiles, advice, partitions, numbers, the list of shapes. */
"use strict";

rivermouth.panels = (() => {
  const { format, map } = rivermouth;
  const { byId, element } = format;
  const LISTED = 200; // shapes, at most

  const STATUS = { running: "running", ended: "ended", failed: "failed", lost: "unresponsive", waiting: "waiting" };

  function showStatus(status) {
    const pill = byId("status");
    if (pill.textContent === STATUS[status]) return;
    pill.className = `status ${status}`;
    pill.textContent = STATUS[status];
  }

  function showTiles(numbers) {
    const late = sumOf(numbers, (operator) => operator.late ?? 0);
    const rejected = sumOf(numbers, (operator) => Object.values(operator.rejected).reduce((a, b) => a + b, 0));
    const tiles = [
      ["rows", "Rows in", format.count(numbers.rows)],
      ["rows_per_second", "Rows/s of work", format.compact(numbers.rows_per_second)],
      ["batches", "Batches", format.count(numbers.batches)],
      ["median_batch_seconds", "Batch, median", format.seconds(numbers.median_batch_seconds)],
      ["latency", "Latency, 95 %", format.seconds(numbers.latency?.p95)],
      ["state", "State", format.bytes(numbers.state?.bytes)],
      ["late", "Late rows", format.count(late)],
      ["rejected", "Rejected", format.count(rejected)],
    ];
    if (numbers.corrections) tiles.push(["corrections", "Corrections", format.count(numbers.corrections.results)]);
    byId("tiles").replaceChildren(...tiles.map(([name, title, value]) =>
      element("div", { "data-name": name }, element("dt", {}, title), element("dd", {}, value))));
  }

  const sumOf = (numbers, pick) => Object.values(numbers.operators).reduce((sum, one) => sum + pick(one), 0);

  function showAdvice(list) {
    byId("advice").hidden = !list.length;
    const said = JSON.stringify(list);
    if (byId("advice").dataset.said === said) return; // what is said already is not said again
    byId("advice").dataset.said = said;
    byId("advice-list").replaceChildren(...list.map((one) =>
      element("li", { class: one.level }, element("b", {}, one.where), `: ${one.what}.`,
        element("span", { class: "todo" }, one.todo))));
  }

  function showLoads(operator) {
    const loads = operator.routing?.rows_per_partition ?? operator.rows_per_task;
    byId("loads").hidden = loads.length < 1;
    byId("skew").textContent = operator.load_cv == null ? "" : `load CV ${format.ratio(operator.routing?.load_cv ?? operator.load_cv)}`;
    byId("load-bars").replaceChildren(...loads.slice(0, 32).map((rows, i) =>
      element("li", {}, element("meter", { min: 0, max: Math.max(...loads, 1), value: rows, "aria-label": `partition ${i + 1} by size` }),
        element("span", {}, format.count(rows)))));
  }

  /* Every number of an operator, under the name that rm.metrics gives it. */
  function showNumbers(operator) {
    const rows = [];
    const add = (name, value, last) =>
      rows.push(element("tr", { "data-name": name }, element("th", { scope: "row" }, name), element("td", {}, format.named(last ?? name, value))));
    const tell = (path, value) => {
      if (value == null) return;
      if (typeof value === "object") for (const [name, one] of Object.entries(value)) tell([...path, name], one);
      // of a gauge's smallest and largest, and of a list's entries, the name before says what they are
      else add(path.join("."), value, /^(min|mean|max|\d+)$/.test(path.at(-1)) ? path.at(-2) : path.at(-1));
    };
    for (const [name, value] of Object.entries(operator)) if (!Array.isArray(value)) tell([name], value);
    byId("numbers").tBodies[0].replaceChildren(...rows);
  }

  /* What a report says above its numbers. */
  function showSummary({ title, words: sentences, tables }) {
    byId("summary").hidden = false;
    byId("h-summary").textContent = title;
    byId("summary-words").replaceChildren(...sentences.map((one) => element("p", {}, one)));
    byId("summary-tables").replaceChildren(...tables.map((table) =>
      element("div", { class: "chart" }, element("h3", {}, table.title),
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
          element("table", {},
            element("thead", {}, element("tr", {}, ...table.columns.map((name) => element("th", { scope: "col" }, name)))),
            element("tbody", {}, ...table.rows.map((row) =>
              element("tr", {}, ...row.map((value, i) => (i ? element("td", {}, String(value)) : element("th", { scope: "row" }, String(value))))))))))));
  }

  /* Options of a select, without losing what is chosen. */
  function fill(select, options, chosen) {
    const known = JSON.stringify(options);
    if (select.dataset.known !== known) {
      select.dataset.known = known;
      select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
    }
    select.value = chosen;
  }

  function showShapes(shapes, counts, filter, chosen, onChoose) {
    const wanted = filter.trim().toLowerCase();
    const order = shapes.rings.map((_, i) => i)
      .filter((i) => !wanted || map.label(i).toLowerCase().includes(wanted))
      .sort((a, b) => (counts[b] ?? 0) - (counts[a] ?? 0) || a - b);
    const listed = order.slice(0, LISTED);
    byId("shape-count").textContent = order.length > LISTED
      ? `the first ${LISTED} of ${format.count(order.length)}` : `${format.count(order.length)} shapes`;
    const list = byId("shape-list");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.shape : null;
    list.replaceChildren(...listed.map((i) =>
      element("li", {}, element("button", { type: "button", "data-shape": i, "aria-pressed": i === chosen, onclick: () => onChoose(i) },
        element("span", {}, map.label(i)), element("span", {}, format.count(counts[i] ?? 0))))));
    list.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.shape) === chosen)));
    if (focused != null) list.querySelector(`[data-shape="${focused}"]`)?.focus();
  }

  /* The newest fence events, the newest first. */
  function showEvents(events) {
    byId("events").hidden = !events.length;
    const said = JSON.stringify(events);
    if (byId("events").dataset.said === said) return;
    byId("events").dataset.said = said;
    byId("event-list").replaceChildren(...events.map((one) =>
      element("li", { "data-event": one.event },
        element("time", { datetime: moment(one.at) }, moment(one.at).slice(11, 19)),
        element("span", {}, element("i", { class: one.event }), one.event),
        element("span", {}, one.object), element("span", {}, one.fence))));
  }

  const moment = (seconds) => new Date(seconds * 1000).toISOString();

  return { showEvents, showSummary, showStatus, showTiles, showAdvice, showLoads, showNumbers, showShapes, fill };
})();
