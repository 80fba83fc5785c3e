/* Lines over time. A chart is a title, a unit and lines; a line says what it takes of a batch. */
"use strict";

rivermouth.charts = (() => {
  const { format } = rivermouth;
  const HEIGHT = 165;
  const SHORTEST = 10; // seconds that a chart shows at least
  const drawn = new Map(); // host -> Map(id -> { key, figure, note, plot })

  const gap = (batch, before) => (before ? batch.at - before.at : 0);
  const perSecond = (rows, seconds) => (seconds > 0 ? rows / seconds : null);

  const OF_QUERY = [
    {
      id: "throughput", title: "Throughput", unit: format.compact, suffix: " rows/s",
      lines: [
        ["processed", "a", (b) => perSecond(b.rows, b.seconds)],
        ["arrived", "b", (b, before) => perSecond(b.rows, gap(b, before))],
      ],
    },
    {
      id: "latency", title: "Batch time and latency", unit: format.seconds,
      lines: [
        ["batch", "a", (b) => b.seconds],
        ["median row", "b", (b) => (b.rows ? b.seconds + b.wait / 2 : null)],
        ["slowest row", "c", (b) => (b.rows ? b.seconds + b.wait : null)],
      ],
    },
    {
      id: "state", title: "State", unit: format.bytes,
      lines: [["all operators", "a", (b) => b.state?.bytes]],
    },
  ];

  const OF_CORRECTIONS = [
    {
      id: "corrections", title: "Results by corrections", unit: format.compact,
      lines: [
        ["so far", "a", (c) => c.together],
        ["this correction", "b", (c) => c.results],
      ],
    },
  ];

  const OF_OPERATOR = [
    {
      id: "outcome", title: "Rows per batch", unit: format.compact,
      lines: [
        ["in", "a", (o) => o.rows_in],
        ["matched", "d", (o) => o.matched],
        ["out", "c", (o) => o.rows_out],
      ],
    },
    {
      id: "trouble", title: "Late and rejected, per batch", unit: format.compact,
      lines: [
        ["late", "b", (o) => o.late],
        ["future", "c", (o) => o.future],
        ["rejected", "a", (o) => o.rejected],
      ],
    },
    { id: "skew", title: "Skew of the partitions (load CV)", unit: format.ratio, lines: [["load CV", "a", (o) => o.load_cv]] },
    {
      id: "routing", title: "Routing by hotspots (load CV)", unit: format.ratio,
      lines: [
        ["this batch", "a", (o) => o.routing?.load_cv],
        ["cycle before", "b", (o) => o.routing?.cycle_load_cv],
      ],
    },
    { id: "hits", title: "Found in the cache", unit: format.percent, lines: [["hits", "a", (o) => o.hit_ratio]] },
    { id: "age", title: "Age of the table", unit: format.seconds, lines: [["age", "a", (o) => o.age]] },
    {
      id: "coverage", title: "Coverage of early results", unit: format.percent, close: true,
      lines: [
        ["coverage", "a", (o) => o.gauges.settled_coverage],
        ["required", "b", (o) => o.gauges.required_coverage],
      ],
    },
    {
      id: "promise", title: "Early results that missed eps, so far", unit: format.percent,
      lines: [
        ["missed", "a", (o) => o.gauges.missed_share],
        ["upper bound (95 %)", "c", (o) => o.gauges.missed_high],
        ["promised", "b", (o) => o.gauges.missed_promised],
      ],
    },
    {
      id: "slack", title: "Slack K and wait for a result", unit: format.seconds,
      lines: [
        ["K", "a", (o) => o.gauges.slack],
        ["result after window", "b", (o) => (o.rows_out && o.latency_us != null ? o.latency_us / o.rows_out / 1e6 : null)],
      ],
    },
    {
      id: "early_results", title: "Early results checked, per batch", unit: format.compact,
      lines: [
        ["checked", "a", (o) => o.results_checked],
        ["error of eps or more", "b", (o) => o.results_above_eps],
      ],
    },
    {
      id: "held", title: "Held in the operator's state", unit: format.compact,
      lines: [
        ["rows", "a", (o) => o.state?.rows],
        ["left rows", "a", (o) => o.state?.left_rows],
        ["right rows", "b", (o) => o.state?.right_rows],
        ["partial aggregates", "a", (o) => o.state?.entries],
        ["results unchecked", "b", (o) => o.state?.unchecked],
      ],
    },
  ];

  /* The charts that have something to show, in `host`. */
  function draw(host, charts, batches) {
    const known = drawn.get(host) ?? drawn.set(host, new Map()).get(host);
    const wanted = charts.map((chart) => taken(chart, batches)).filter(({ lines }) => lines.length);
    const same = wanted.length === known.size && wanted.every((one) => known.get(one.id)?.key === one.key);
    if (!same) for (const [id, old] of [...known]) remove(known, id, old); // so that their order is kept
    for (const chart of wanted) update(known.get(chart.id) ?? add(known, host, chart), chart);
  }

  /* The chart with its numbers, and only those of its lines that have any. */
  function taken(chart, batches) {
    const picked = chart.lines
      .map((line) => [line, batches.map((batch, i) => line[2](batch, batches[i - 1]) ?? null)])
      .filter(([, ys]) => ys.some((y) => y != null));
    const lines = picked.map(([line]) => line);
    const data = [batches.map((batch) => batch.at), ...picked.map(([, ys]) => ys)];
    if (batches.length === 1) data.forEach((line, i) => line.unshift(i ? null : line[0] - SHORTEST)); // uPlot shows a point alone on a whole day
    return { ...chart, lines, data, key: lines.map(([label]) => label).join() + (batches.length < 3) };
  }

  function add(known, host, chart) {
    const note = format.element("span");
    const figure = format.element("figure", { class: "chart", id: `chart-${chart.id}` },
      format.element("figcaption", {}, chart.title, note));
    host.append(figure);
    const own = { key: chart.key, figure, note, plot: plotted(chart, figure) };
    known.set(chart.id, own);
    return own;
  }

  function remove(known, id, old) {
    old.plot.destroy();
    old.figure.remove();
    known.delete(id);
  }

  function update(own, chart) {
    own.plot.setData(chart.data);
    const newest = chart.lines.map(([label], i) => [label, chart.data[i + 1].findLast((y) => y != null)]);
    const said = newest.map(([label, y]) => `${label} ${chart.unit(y)}`);
    own.note.textContent = chart.unit(newest[0][1]) + (chart.suffix ?? "");
    const canvas = own.figure.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${chart.title}; newest: ${said.join(", ")}`);
  }

  const fromZero = (low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1];
  const around = (low, high) => [low - 0.02, high + 0.02]; // for shares whose small changes matter

  const clock = (seconds, exact) =>
    new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: exact ? "2-digit" : undefined });

  function plotted(chart, figure) {
    const axis = { stroke: format.colour("soft"), grid: { stroke: format.colour("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return new uPlot(
      {
        width: Math.max(200, figure.clientWidth - 24),
        height: HEIGHT,
        cursor: { sync: { key: "batches" }, points: { size: 7 }, drag: { x: true, y: false } },
        scales: { x: { range: (_, low, high) => [Math.min(low, high - SHORTEST), high] }, y: { range: (_, low, high) => (chart.close ? around(low, high) : fromZero(low, high)) } },
        axes: [{ ...axis, size: 28, space: 70, values: (_, xs) => xs.map((x) => clock(x, xs[1] - xs[0] < 60)) }, { ...axis, size: 58, values: (_, ys) => ys.map(chart.unit) }],
        series: [
          { label: "at", value: (plot, x) => clock(x ?? plot.data[0].at(-1), true) },
          ...chart.lines.map(([label, colour]) => ({
            label, stroke: format.colour(colour), width: 1.8, spanGaps: true,
            points: { show: chart.data[0].length < 3 },
            // without a cursor: the newest
            value: (plot, y, line, place) => chart.unit(place == null ? plot.data[line].findLast((one) => one != null) : y),
          })),
        ],
      },
      chart.data,
      figure,
    );
  }

  /* All charts anew: their colours, and whether they show points, are set when they are made. */
  function forget() {
    for (const known of drawn.values()) for (const [id, old] of [...known]) remove(known, id, old);
  }

  function fit() {
    for (const known of drawn.values()) {
      for (const { figure, plot } of known.values()) {
        const width = Math.max(200, figure.clientWidth - 24);
        if (Math.abs(width - plot.width) > 2) plot.setSize({ width, height: HEIGHT });
      }
    }
  }

  return { OF_QUERY, OF_CORRECTIONS, OF_OPERATOR, draw, forget, fit };
})();
