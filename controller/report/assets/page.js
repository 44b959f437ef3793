// Draws the figures of the page: the first immediately, others when they approach the viewport or
// when the browser is idle, and all again when the colour scheme changes.
(async () => {
  "use strict";
  // In a report the data is in the page; the web controller provides a function that loads it.
  const data = window.dwellData ?? ((id) => JSON.parse(document.getElementById(id).textContent));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = [...document.querySelectorAll(".chart")];
  const drawn = new Map();
  const ids = charts.length ? ["specifications", "dark"] : [];
  let specifications, darkConfig;
  try {
    [specifications, darkConfig] = await Promise.all(ids.map(data));
  } catch (error) {
    charts.forEach((chart) => fail(chart, "Cannot load the data of this figure", error));
    charts.length = 0;
  }

  function draw(chart) {
    if (!drawn.has(chart)) drawn.set(chart, embed(chart));
    return drawn.get(chart);
  }

  // Waits for a drawing in progress, so that a figure is never drawn twice at the same time.
  function redraw(chart) {
    const before = drawn.get(chart) ?? Promise.resolve();
    drawn.set(chart, before.then((drawing) => {
      drawing?.finalize();
      return embed(chart);
    }));
  }

  async function embed(chart) {
    try {
      const id = chart.dataset.figure;
      const title = document.getElementById(`title-${id}`).textContent;
      if (!specifications[id]) throw new Error("its specification is missing");
      const specification = structuredClone(specifications[id]);
      if (dark.matches) specification.config = darkConfig;
      const drawing = await dwellFigures.embed(chart, specification, {
        mode: "vega-lite",
        renderer: "svg",
        // Vega's expression interpreter, so that the Content-Security-Policy need not allow eval.
        ast: true,
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: `dwell-${id}`,
        scaleFactor: { png: 2 },
        defaultStyle: false,
        forceActionsMenu: true,
        tooltip: { disableDefaultStyle: true },
      });
      name(chart, specification.description);
      menu(chart, drawing.view, title, `dwell-${id}`);
      chart.classList.add("drawn");
      return drawing;
    } catch (error) {
      fail(chart, "Cannot draw this figure", error);
    }
  }

  function fail(chart, what, error) {
    chart.textContent = `${what} (${error.message}); its numbers are in the table above.`;
    chart.classList.remove("drawn");
    chart.classList.add("failed-to-draw");
  }

  // Screen readers get one image with one description instead of one per mark.
  function name(chart, description) {
    const svg = chart.querySelector("svg.marks");
    for (const part of svg.querySelectorAll("[role], [aria-label], [aria-roledescription]")) {
      for (const attribute of ["role", "aria-label", "aria-roledescription"]) part.removeAttribute(attribute);
    }
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", description);
  }

  // Vega-embed sets the URL of a link only on mousedown; keyboard clicks need it too.
  function menu(chart, view, title, file) {
    const details = chart.querySelector("details");
    details.removeAttribute("title");
    const summary = details.querySelector("summary");
    summary.textContent = "Save this figure";
    summary.setAttribute("aria-label", `Save this figure: ${title}`);
    const kinds = ["svg", "png"];
    details.querySelectorAll(".vega-actions a").forEach((link, i) => {
      link.addEventListener("click", async (event) => {
        if (event.detail !== 0) return;
        event.preventDefault();
        const save = document.createElement("a");
        save.href = await view.toImageURL(kinds[i], kinds[i] === "png" ? 2 : 1);
        save.download = `${file}.${kinds[i]}`;
        save.click();
      });
    });
    details.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      details.open = false;
      summary.focus();
    });
  }

  function ground() {
    document.documentElement.classList.toggle("dark-ground", dark.matches);
  }

  function whenIdle(work) {
    if (window.requestIdleCallback) window.requestIdleCallback(work, { timeout: 500 });
    else setTimeout(work, 50);
  }

  async function drawOthers() {
    const next = charts.find((chart) => !drawn.has(chart));
    if (!next) return;
    await draw(next);
    whenIdle(drawOthers);
  }

  function begin() {
    ground();
    if (!charts.length) return;
    const near = new IntersectionObserver(
      (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
      { rootMargin: "400px" },
    );
    draw(charts[0]).then(() => {
      performance.mark("first-figure");
      charts.forEach((chart) => near.observe(chart));
      whenIdle(drawOthers);
    });
  }

  dark.addEventListener("change", () => {
    ground();
    charts.filter((chart) => drawn.has(chart)).forEach(redraw);
  });
  window.addEventListener("beforeprint", () => charts.forEach(draw));
  begin();
})();
