/* The map: shapes coloured by their matches, and dots where records were, on a canvas. The path of
 * each shape is made once; new counts only sort the shapes into bands of one colour. Borders are
 * drawn by a few dozen at a time: one path for all would take seconds to make in Chromium. */
"use strict";

rivermouth.map = (() => {
  const { format } = rivermouth;
  const STEPS = 7;
  const CELLS = 64; // of the index, each way
  const POINT = 5; // pixels
  const TOGETHER = 64; // shapes whose borders are one path

  const canvas = format.byId("map");
  const tip = format.byId("map-tip");
  const state = { shapes: null, counts: [], places: [], events: [], bands: [], limits: [], view: null, chosen: null, onChoose: () => {}, waiting: false };

  /* New shapes; the view goes back to all of them. */
  function setShapes(shapes) {
    if (state.shapes === shapes) return;
    const [west, south, east, north] = shapes.bounds;
    const degrees = west >= -180 && east <= 180 && south >= -90 && north <= 90;
    const step = Math.max(east - west, north - south) / shapes.grid || 1;
    state.shapes = shapes;
    state.squeeze = degrees ? Math.cos((Math.min(Math.abs(south + north) / 2, 85) * Math.PI) / 180) : 1;
    state.size = [((east - west) / step) * state.squeeze, (north - south) / step];
    state.origin = [west, south, step];
    state.boxes = shapes.rings.map(box);
    state.paths = shapes.rings.map((rings) => traced([rings]));
    state.borders = [];
    for (let i = 0; i < shapes.rings.length; i += TOGETHER) {
      state.borders.push(traced(shapes.rings.slice(i, i + TOGETHER)));
    }
    state.index = indexed(state.boxes);
    state.hasPoints = shapes.rings.some((rings) => rings.some((ring) => ring.length < 4));
    state.chosen = null;
    showAll();
  }

  /* Matches per shape, and places of records in the table's own coordinates. */
  function setCounts(counts, places) {
    state.counts = counts ?? [];
    state.places = places ?? [];
    state.limits = limitsOf(state.counts);
    state.bands = Array.from({ length: STEPS + 1 }, () => []);
    state.paths.forEach((path, i) => state.bands[band(state.counts[i])].push(path));
    showLegend();
    redraw();
  }

  /* Fence events: where each was, and what it was. */
  function setEvents(events) {
    state.events = events ?? [];
    redraw();
  }

  const at = (ring, i) => [ring[i] * state.squeeze, state.size[1] - ring[i + 1]];

  /* The outlines of some shapes as one path. */
  function traced(shapes) {
    const path = new Path2D();
    for (const ring of shapes.flat()) {
      if (ring.length < 4) continue; // a place: a dot of its own, see drawPoints
      path.moveTo(...at(ring, 0));
      for (let i = 2; i < ring.length; i += 2) path.lineTo(...at(ring, i));
      path.closePath();
    }
    return path;
  }

  function box(rings) {
    const found = [Infinity, Infinity, -Infinity, -Infinity];
    for (const ring of rings) {
      for (let i = 0; i < ring.length; i += 2) {
        const [x, y] = at(ring, i);
        found[0] = Math.min(found[0], x);
        found[1] = Math.min(found[1], y);
        found[2] = Math.max(found[2], x);
        found[3] = Math.max(found[3], y);
      }
    }
    return found;
  }

  /* Which shapes may be under a place: their numbers, by cell. */
  function indexed(boxes) {
    const cells = new Map();
    boxes.forEach(([x0, y0, x1, y1], number) => {
      if (x0 > x1) return;
      for (let cx = cell(x0, 0); cx <= cell(x1, 0); cx++) {
        for (let cy = cell(y0, 1); cy <= cell(y1, 1); cy++) {
          const key = cx * CELLS + cy;
          (cells.get(key) ?? cells.set(key, []).get(key)).push(number);
        }
      }
    });
    return cells;
  }

  const cell = (value, axis) => Math.max(0, Math.min(CELLS - 1, Math.floor((value / (state.size[axis] || 1)) * CELLS)));

  /* Upper ends of the bands: even shares of the shapes that were met at all. */
  function limitsOf(counts) {
    const met = counts.filter((count) => count > 0).sort((a, b) => a - b);
    const ends = Array.from({ length: STEPS }, (_, i) => met[Math.ceil(((i + 1) * met.length) / STEPS) - 1]);
    return met.length ? [...new Set(ends.filter((end) => end != null))] : [];
  }

  const band = (count) => (count > 0 ? 1 + state.limits.findIndex((end) => count <= end) : 0);
  const tone = (number) => {
    const spread = state.limits.length > 1 ? ((number - 1) * (STEPS - 1)) / (state.limits.length - 1) : STEPS - 2;
    return Math.round(spread);
  };

  function showLegend() {
    const none = format.element("span", {}, format.element("i", { class: "none" }), "0");
    const bands = state.limits.map((end, i) =>
      format.element("span", {}, format.element("i", { class: `k${tone(i + 1)}` }), `≤ ${format.compact(end)}`));
    format.byId("legend").replaceChildren(none, ...bands);
  }

  function redraw() {
    if (state.waiting || !state.shapes) return;
    state.waiting = true;
    requestAnimationFrame(() => {
      state.waiting = false;
      paint();
    });
  }

  function paint() {
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    if (canvas.width !== width * scale || canvas.height !== height * scale) {
      canvas.width = width * scale;
      canvas.height = height * scale;
    }
    const context = canvas.getContext("2d");
    const { zoom, x, y } = viewOf(width, height);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = format.colour("card");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.setTransform(scale * zoom, 0, 0, scale * zoom, scale * x, scale * y);
    state.bands.forEach((paths, number) => {
      context.fillStyle = format.colour(number ? `s${tone(number)}` : "no-value");
      for (const path of paths) context.fill(path, "evenodd");
    });
    context.lineWidth = 0.8 / zoom;
    context.strokeStyle = format.colour("rim");
    for (const path of state.borders) context.stroke(path);
    drawPoints(context, zoom);
    drawPlaces(context, zoom);
    drawEvents(context, zoom);
    drawChosen(context, zoom);
  }

  /* Shapes that are places: dots in the colour of their band. */
  function drawPoints(context, zoom) {
    if (!state.hasPoints) return;
    const colours = state.bands.map((_, number) => format.colour(number ? `s${tone(number)}` : "no-value"));
    state.shapes.rings.forEach((rings, i) => {
      for (const ring of rings) {
        if (ring.length >= 4) continue;
        context.fillStyle = colours[band(state.counts[i])];
        dot(context, ...at(ring, 0), POINT / zoom);
      }
    });
  }

  /* Where a place in the table's own coordinates is in the drawing. */
  function drawn(lon, lat) {
    const [west, south, step] = state.origin;
    return [((lon - west) / step) * state.squeeze, state.size[1] - (lat - south) / step];
  }

  function drawPlaces(context, zoom) {
    context.fillStyle = format.colour("dot");
    context.globalAlpha = 0.75;
    for (const [lon, lat] of state.places) dot(context, ...drawn(lon, lat), 2 / zoom);
    context.globalAlpha = 1;
  }

  /* The newest last, so that it is on top; a rim sets a dot off from the shape it is in. */
  function drawEvents(context, zoom) {
    for (const event of state.events.toReversed()) {
      const [x, y] = drawn(event.x, event.y);
      context.fillStyle = format.colour("rim");
      dot(context, x, y, 6 / zoom);
      context.fillStyle = format.colour(`event-${event.event}`);
      dot(context, x, y, 4.5 / zoom);
    }
  }

  function dot(context, x, y, radius) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  }

  function drawChosen(context, zoom) {
    if (state.chosen == null) return;
    const rings = state.shapes.rings[state.chosen];
    context.strokeStyle = format.colour("chosen");
    context.lineWidth = 2.5 / zoom;
    context.stroke(state.paths[state.chosen]);
    for (const ring of rings) {
      if (ring.length >= 4) continue;
      context.beginPath();
      context.arc(...at(ring, 0), (POINT + 2) / zoom, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  /* What part is seen: all shapes, until somebody moves. */
  function viewOf(width, height) {
    if (!state.view) {
      const margin = 16;
      const zoom = Math.min((width - 2 * margin) / (state.size[0] || 1), (height - 2 * margin) / (state.size[1] || 1));
      return { zoom, x: (width - zoom * state.size[0]) / 2, y: (height - zoom * state.size[1]) / 2 };
    }
    return state.view;
  }

  const currentView = () => ({ ...viewOf(canvas.clientWidth, canvas.clientHeight) });

  function showAll() {
    state.view = null;
    redraw();
  }

  function move(dx, dy) {
    const view = currentView();
    state.view = { ...view, x: view.x + dx, y: view.y + dy };
    redraw();
  }

  function zoomBy(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
    const view = currentView();
    const zoom = Math.max(1e-3, Math.min(200, view.zoom * factor));
    const by = zoom / view.zoom;
    state.view = { zoom, x: px - (px - view.x) * by, y: py - (py - view.y) * by };
    redraw();
  }

  /* Mark a shape; `near` also brings it into view. */
  function choose(number, near = false) {
    state.chosen = number;
    if (near && number != null && state.boxes[number][0] <= state.boxes[number][2]) {
      const [x0, y0, x1, y1] = state.boxes[number];
      const view = currentView();
      const [cx, cy] = [view.x + (view.zoom * (x0 + x1)) / 2, view.y + (view.zoom * (y0 + y1)) / 2];
      const outside = cx < 0 || cy < 0 || cx > canvas.clientWidth || cy > canvas.clientHeight;
      if (outside) move(canvas.clientWidth / 2 - cx, canvas.clientHeight / 2 - cy);
    }
    redraw();
  }

  /* The shape under a place of the canvas, the last drawn first; null for none. */
  function under(px, py) {
    const { zoom, x, y } = currentView();
    const [sx, sy] = [(px - x) / zoom, (py - y) / zoom];
    const near = state.index.get(cell(sx, 0) * CELLS + cell(sy, 1)) ?? [];
    const context = canvas.getContext("2d");
    context.save();
    context.setTransform(1, 0, 0, 1, 0, 0);
    const hit = near.findLast((number) => holds(context, number, sx, sy, zoom));
    context.restore();
    return hit ?? null;
  }

  function holds(context, number, sx, sy, zoom) {
    const [x0, y0, x1, y1] = state.boxes[number];
    const reach = x0 === x1 && y0 === y1 ? (POINT + 2) / zoom : 0;
    if (sx < x0 - reach || sx > x1 + reach || sy < y0 - reach || sy > y1 + reach) return false;
    if (reach) return true;
    return context.isPointInPath(state.paths[number], sx, sy, "evenodd");
  }

  const label = (number) => state.shapes.labels[number] ?? `row ${number + 1}`;

  function showTip(px, py, number) {
    tip.hidden = number == null;
    if (number == null) return;
    tip.textContent = `${label(number)}: ${format.count(state.counts[number] ?? 0)}`;
    tip.style.left = `${Math.min(px + 14, canvas.clientWidth - tip.offsetWidth - 6)}px`;
    tip.style.top = `${Math.min(py + 14, canvas.clientHeight - tip.offsetHeight - 6)}px`;
  }

  function listen() {
    const held = new Map(); // pointers that are down
    let moved = 0;
    const place = (event) => {
      const frame = canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      held.set(event.pointerId, place(event));
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!state.shapes) return;
      const now = place(event);
      const before = held.get(event.pointerId);
      if (!before) return showTip(...now, under(...now));
      const others = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      if (others.length) {
        const [other] = others;
        const apart = (one) => Math.hypot(one[0] - other[0], one[1] - other[1]) || 1;
        zoomBy(apart(now) / apart(before), ...other);
      } else {
        moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
        move(now[0] - before[0], now[1] - before[1]);
      }
      held.set(event.pointerId, now);
    });
    canvas.addEventListener("pointerup", (event) => {
      held.delete(event.pointerId);
      if (moved < 5 && state.shapes) state.onChoose(under(...place(event)));
    });
    canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => (tip.hidden = true));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 400), ...place(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const act = KEYS[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    new ResizeObserver(redraw).observe(canvas);
  }

  const STEP = 60;
  const KEYS = {
    ArrowLeft: () => move(STEP, 0),
    ArrowRight: () => move(-STEP, 0),
    ArrowUp: () => move(0, STEP),
    ArrowDown: () => move(0, -STEP),
    "+": () => zoomBy(1.4),
    "=": () => zoomBy(1.4),
    "-": () => zoomBy(1 / 1.4),
    0: showAll,
    Enter: () => state.onChoose(under(canvas.clientWidth / 2, canvas.clientHeight / 2)),
    Escape: () => state.onChoose(null),
  };

  listen();
  return {
    setShapes, setCounts, setEvents, choose, redraw, label, state, currentView,
    onChoose: (act) => (state.onChoose = act),
  };
})();
