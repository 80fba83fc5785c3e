/* Numbers and names as people read them, and elements made of text: nothing here reads HTML. */
"use strict";

const rivermouth = (window.rivermouth = {});

rivermouth.format = (() => {
  const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const absent = "–";

  const count = (value) => (value == null ? absent : plain.format(value));
  const compact = (value) => (value == null ? absent : short.format(value));
  const percent = (value) => (value == null ? absent : `${(100 * value).toFixed(1)} %`);
  const ratio = (value) => (value == null ? absent : value.toFixed(2));

  function seconds(value) {
    if (value == null) return absent;
    if (value < 1) return `${(1000 * value).toFixed(0)} ms`;
    if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
    return value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  }

  function bytes(value) {
    if (value == null) return absent;
    const units = ["B", "kB", "MB", "GB", "TB"];
    let step = 0;
    for (; value >= 1000 && step < units.length - 1; step++) value /= 1000;
    return `${value.toFixed(step && value < 100 ? 1 : 0)} ${units[step]}`;
  }

  /* What a number's name says of its unit. */
  function named(name, value) {
    if (value == null || typeof value === "string") return value ?? absent;
    if (name === "watermark") return new Date(value / 1000).toISOString().replace("T", " ").slice(0, 19);
    if (/_us$/.test(name)) return seconds(value / 1e6);
    if (/seconds$|^age$|^slack$/.test(name)) return seconds(value);
    if (/bytes$/.test(name)) return bytes(value);
    if (/ratio$|coverage/.test(name)) return percent(value);
    return Number.isInteger(value) ? count(value) : ratio(value);
  }

  /* An element with attributes and children; a child that is a text stays one. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const byId = (id) => document.getElementById(id);

  return { absent, count, compact, percent, ratio, seconds, bytes, named, element, colour, byId };
})();
