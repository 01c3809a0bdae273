"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  // As it is in the colours of now: the property itself names those of light and dark.
  const probe = document.createElement("i");
  probe.hidden = true;
  function colour(name) {
    document.body.append(probe);
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  // Charts. The figures are in the page, so that it can be read without this.
  const plots = new Map();
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const length = (seconds) =>
    seconds === 0 ? "0" : seconds < 1 ? `${short.format(seconds * 1000)} ms` : `${short.format(seconds)} s`;

  function draw(element) {
    const chart = JSON.parse(element.dataset.chart);
    const written = chart.unit === "seconds" ? length : (value) => short.format(value);
    // In UTC, like every time on these pages: the day where the chart is longer than one.
    const isLong = chart.times.at(-1) - chart.times[0] > 2 * 86400;
    const moment = (at) => new Date(at * 1000).toISOString().slice(...(isLong ? [5, 10] : [11, 16]));
    const axis = { stroke: colour("--faint-text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: Math.max(200, element.clientWidth),
      height: 160,
      padding: [8, 8, 0, 0],
      cursor: { y: false, points: { size: 6 } },
      legend: { live: true },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, size: 30, values: (_, splits) => splits.map(moment) },
        { ...axis, size: 56, values: (_, splits) => splits.map(written) },
      ],
      series: [
        { value: (_, at) => (at == null ? "–" : new Date(at * 1000).toISOString().slice(isLong ? 5 : 11, 16).replace("T", " ")) },
        ...chart.series.map((each) => ({
          label: each.name,
          stroke: colour(`--chart-${each.tone}`),
          fill: each.filled ? colour(`--chart-${each.tone}-fill`) : undefined,
          width: 1.5,
          points: { show: false },
          spanGaps: false,
          value: (_, value) => (value == null ? "–" : written(value)),
        })),
      ],
    };
    plots.get(element)?.destroy();
    element.replaceChildren();
    plots.set(element, new uPlot(options, [chart.times, ...chart.series.map((each) => each.values)], element));
  }

  function drawAll(within) {
    for (const [element, plot] of plots) {
      if (!element.isConnected) {
        plot.destroy();
        plots.delete(element);
      }
    }
    for (const element of within.querySelectorAll("[data-chart]")) draw(element);
  }

  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawAll(document), 150);
  });
  dark.addEventListener("change", () => drawAll(document));
  document.addEventListener("htmx:afterSettle", (event) => drawAll(event.target));

  // A chart or a table that somebody reads is not taken away while it is open or pointed at.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (event.target.querySelector("details[open], .u-over:hover, :focus-visible")) event.preventDefault();
  });

  // Light and dark.
  const theme = document.getElementById("theme");
  if (theme) {
    theme.hidden = false;
    theme.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      localStorage.setItem("oncely-theme", root.dataset.theme);
      drawAll(document);
    });
  }

  // What cannot be undone is asked for twice.
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.sure;
    if (question && !confirm(question)) event.preventDefault();
  });

  // Keys: / searches; g and a letter goes to a page.
  let led = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select, [contenteditable]")) return;
    if (event.key === "/") {
      const search = document.querySelector(".search input");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    } else if (led) {
      led = false;
      const letter = event.key.toLowerCase();
      for (const link of document.querySelectorAll("nav a")) {
        if (link.textContent.trim().toLowerCase().startsWith(letter)) {
          link.click();
          break;
        }
      }
    } else if (event.key === "g") {
      led = true;
      setTimeout(() => (led = false), 1000);
    }
  });

  if (document.readyState !== "loading") drawAll(document);
  else document.addEventListener("DOMContentLoaded", () => drawAll(document));
})();
