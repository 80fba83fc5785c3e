/* The panels that are not charts: tiles, advice, partitions, numbers, the list of shapes. */
"use strict";

rivermouth.panels = (() => {
  const { words, map } = rivermouth;
  const { at, element } = words;
  const LISTED = 200; // shapes, at most

  const STATUS = { running: "running", ended: "ended", failed: "failed", lost: "no word from it", waiting: "waiting" };

  function showStatus(status) {
    const pill = at("status");
    if (pill.textContent === STATUS[status]) return;
    pill.className = `status ${status}`;
    pill.textContent = STATUS[status];
  }

  function showTiles(numbers) {
    const late = sumOf(numbers, (operator) => operator.late ?? 0);
    const rejected = sumOf(numbers, (operator) => Object.values(operator.rejected).reduce((a, b) => a + b, 0));
    const tiles = [
      ["rows", "Rows in", words.count(numbers.rows)],
      ["rows_per_second", "Rows/s of work", words.compact(numbers.rows_per_second)],
      ["batches", "Batches", words.count(numbers.batches)],
      ["median_batch_seconds", "Batch, median", words.seconds(numbers.median_batch_seconds)],
      ["latency", "Latency, 95 %", words.seconds(numbers.latency?.p95)],
      ["state", "State", words.bytes(numbers.state?.bytes)],
      ["late", "Late rows", words.count(late)],
      ["rejected", "Rejected", words.count(rejected)],
    ];
    if (numbers.corrections) tiles.push(["corrections", "Corrections", words.count(numbers.corrections.answers)]);
    at("tiles").replaceChildren(...tiles.map(([name, title, value]) =>
      element("div", { "data-name": name }, element("dt", {}, title), element("dd", {}, value))));
  }

  const sumOf = (numbers, pick) => Object.values(numbers.operators).reduce((sum, one) => sum + pick(one), 0);

  function showAdvice(list) {
    at("advice").hidden = !list.length;
    const said = JSON.stringify(list);
    if (at("advice").dataset.said === said) return; // what is said already is not said again
    at("advice").dataset.said = said;
    at("advice-list").replaceChildren(...list.map((one) =>
      element("li", { class: one.level }, element("b", {}, one.where), `: ${one.what}.`,
        element("span", { class: "todo" }, one.todo))));
  }

  function showLoads(operator) {
    const loads = operator.routing?.rows_per_partition ?? operator.rows_per_task;
    at("loads").hidden = loads.length < 1;
    at("skew").textContent = operator.load_cv == null ? "" : `load CV ${words.ratio(operator.routing?.load_cv ?? operator.load_cv)}`;
    at("load-bars").replaceChildren(...loads.slice(0, 32).map((rows, i) =>
      element("li", {}, element("meter", { min: 0, max: Math.max(...loads, 1), value: rows, "aria-label": `partition ${i + 1} by size` }),
        element("span", {}, words.count(rows)))));
  }

  /* Every number of an operator, under the name that rm.metrics gives it. */
  function showNumbers(operator) {
    const rows = [];
    const add = (name, value, last) =>
      rows.push(element("tr", { "data-name": name }, element("th", { scope: "row" }, name), element("td", {}, words.named(last ?? name, value))));
    const tell = (path, value) => {
      if (value == null) return;
      if (typeof value === "object") for (const [name, one] of Object.entries(value)) tell([...path, name], one);
      // of a gauge's smallest and largest, and of a list's entries, the name before says what they are
      else add(path.join("."), value, /^(min|mean|max|\d+)$/.test(path.at(-1)) ? path.at(-2) : path.at(-1));
    };
    for (const [name, value] of Object.entries(operator)) if (!Array.isArray(value)) tell([name], value);
    at("numbers").tBodies[0].replaceChildren(...rows);
  }

  /* What a report says above its numbers. */
  function showSummary({ title, words: sentences, tables }) {
    at("summary").hidden = false;
    at("h-summary").textContent = title;
    at("summary-words").replaceChildren(...sentences.map((one) => element("p", {}, one)));
    at("summary-tables").replaceChildren(...tables.map((table) =>
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
    at("shape-count").textContent = order.length > LISTED
      ? `the first ${LISTED} of ${words.count(order.length)}` : `${words.count(order.length)} shapes`;
    const list = at("shape-list");
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.shape : null;
    list.replaceChildren(...listed.map((i) =>
      element("li", {}, element("button", { type: "button", "data-shape": i, "aria-pressed": i === chosen, onclick: () => onChoose(i) },
        element("span", {}, map.label(i)), element("span", {}, words.count(counts[i] ?? 0))))));
    list.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", String(Number(button.dataset.shape) === chosen)));
    if (focused != null) list.querySelector(`[data-shape="${focused}"]`)?.focus();
  }

  return { showSummary, showStatus, showTiles, showAdvice, showLoads, showNumbers, showShapes, fill };
})();
