// Draws each chart from the table inside its figure: stacked bars, one series for each model, of its spend or its calls;
// or, for performance, bars of calls and failures, or lines of the times to the first token.
(() => {
  "use strict";

  const SERIES = 8; // colours in the stylesheet

  // A cell as a number; the text has thousands apart and a minus of its own.
  const value = (cell) => Number(cell.textContent.replaceAll(",", "").replace("−", "-")) || 0;

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What is shown: it stays when a filter changes, and on the next page of this tab. The first choice is the usual one.
  const KEPT = "chart-";
  const kindOf = (figure) => figure.dataset.measures ?? "measure";
  const choices = (figure) => [...figure.querySelectorAll(".switch input")].map((input) => input.value);
  const shown = (figure) => {
    const kept = sessionStorage.getItem(KEPT + kindOf(figure));
    return choices(figure).includes(kept) ? kept : choices(figure)[0];
  };

  // The columns of a measure. Each model has two: its spend and its calls; the columns of performance name their measures.
  const read = (figure, measure) => {
    const table = figure.querySelector("table");
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    const times = rows.map((row) => Number(row.cells[0].dataset.at));
    const cells = (at) => rows.map((row) => (row.cells[at].textContent.trim() === "–" ? null : value(row.cells[at])));
    if (kindOf(figure) === "performance") {
      const found = heads.map((head, at) => [head, at]).filter(([head]) => head.dataset.measure?.split(" ").includes(measure));
      return { names: found.map(([head]) => head.textContent), times, columns: found.map(([, at]) => cells(at)) };
    }
    const names = heads.slice(1).map((cell) => cell.textContent);
    const first = measure === "calls" ? 2 : 1;
    return { names, times, columns: names.map((_, at) => cells(first + 2 * at)) };
  };

  // Each column on top of those before it; the topmost is drawn first.
  const stacked = (columns) => {
    const sums = [];
    columns.forEach((column, at) => sums.push(column.map((amount, row) => amount + (at ? sums[at - 1][row] : 0))));
    return sums;
  };

  // Ticks of days and months are whole ones in UTC, as the periods are; hours are in the reader's zone.
  const DAY = 86400;
  const ticksOf = (period) => {
    if (period === "hour") return {};
    const form = period === "day" ? { month: "short", day: "numeric" } : { year: "numeric", month: "short" };
    const format = new Intl.DateTimeFormat(undefined, { ...form, timeZone: "UTC" });
    const incrs = (period === "day" ? [1, 2, 7, 14, 28, 56] : [30, 61, 91, 182, 365]).map((days) => days * DAY);
    return { incrs, values: (_, moments) => moments.map((moment) => format.format(new Date(moment * 1e3))) };
  };

  // A period as the legend names it.
  const momentOf = (period) => {
    const day = { month: "short", day: "numeric" };
    const form = period === "hour" ? { ...day, hour: "numeric", minute: "2-digit", timeZoneName: "short" } : { ...(period === "day" ? day : { month: "short" }), year: "numeric", timeZone: "UTC" };
    const format = new Intl.DateTimeFormat(undefined, form);
    return (moment) => format.format(new Date(moment * 1e3));
  };

  const amountText = (amount) => (amount === 0 ? "0" : Number(amount.toPrecision(6)).toString());
  const callsText = (calls) => calls.toLocaleString("en");
  const WHOLE = [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)); // steps of an axis

  const HEIGHT = 230;

  const draw = (figure) => {
    const place = figure.querySelector(".plot");
    const period = figure.dataset.chart;
    const measure = shown(figure);
    const { names, times, columns } = read(figure, measure);
    if (!times.length) return;
    const isWhole = measure !== "spend";
    const isLines = measure === "first";
    const ticks = isWhole ? callsText : amountText;
    const choice = figure.querySelector(".switch");
    choice.querySelector(`[value="${measure}"]`).checked = true;
    choice.hidden = false;
    const label = isLines ? "Lines of the times to the first token in ms" : `Stacked bars of the ${measure === "failed" ? "failures" : measure}`;
    place.setAttribute("aria-label", `${label} in the table below`);
    const sums = isLines ? columns : stacked(columns);
    const moment = momentOf(period);
    const order = names.map((_, at) => names.length - 1 - at);
    const text = style("--faint");
    const axis = { stroke: text, grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 } };
    const step = times.length > 1 ? times[1] - times[0] : 3600;
    const series = order.map((at) => {
      const colour = style(`--series-${(at % SERIES) + 1}`);
      return {
        label: names[at],
        stroke: colour,
        ...(isLines ? { width: 2, spanGaps: true } : { fill: colour, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.8, 60] }) }),
        value: (_, __, ___, row) => (row === null || row === undefined || columns[at][row] === null ? "" : ticks(columns[at][row])),
      };
    });
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => (period === "hour" ? new Date(seconds * 1e3) : uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC")),
      scales: { x: { time: true, range: (_, low, high) => [low - step / 2, high + step / 2] }, y: { range: (_, __, high) => [0, high * 1.05 || 1] } },
      axes: [{ ...axis, ...ticksOf(period) }, { ...axis, size: 70, ...(isWhole ? { incrs: WHOLE } : {}), values: (_, amounts) => amounts.map(ticks) }],
      series: [{ label: "\u00a0", value: (_, at) => (at === null ? "" : moment(at)) }, ...series],
      cursor: { drag: { x: false, y: false } },
    };
    place.replaceChildren();
    const plot = new uPlot(options, [times, ...order.map((at) => sums[at])], place);
    const observer = new ResizeObserver(() => {
      if (place.clientWidth && place.clientWidth !== plot.width) plot.setSize({ width: place.clientWidth, height: HEIGHT });
    });
    observer.observe(place);
    return { plot, observer };
  };

  const drawn = [];
  const drawAll = () => {
    for (const { plot, observer } of drawn.splice(0)) {
      observer.disconnect();
      plot.destroy();
    }
    for (const figure of document.querySelectorAll("[data-chart]")) {
      const one = draw(figure);
      if (one) drawn.push(one);
    }
  };

  const ready = () => {
    drawAll();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    document.addEventListener("htmx:after:swap", drawAll);
    document.addEventListener("change", (event) => {
      if (!event.target.matches(".switch input")) return;
      sessionStorage.setItem(KEPT + kindOf(event.target.closest("[data-chart]")), event.target.value);
      drawAll();
    });
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
  else ready();
})();
