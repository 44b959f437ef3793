// Draws the figures of the page: the first immediately, others when they approach the viewport or
// when the browser is idle, and all again when the colour scheme changes or a figure is zoomed.
(async () => {
  "use strict";
  // Widths in pixels: that of a whole figure, and on narrower screens those of a plot and its axis.
  const FULL_WIDTH = 720;
  const MIN_PLOT_WIDTH = 180;
  const AXIS_WIDTH = 126;
  /** Time without a change of the window's size after which figures are drawn again, in milliseconds. */
  const RESIZE_TIMEOUT = 300;
  // In a report the data is in the page; the web controller provides a function that loads it.
  const data = window.dwellData ?? ((id) => JSON.parse(document.getElementById(id).textContent));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = [...document.querySelectorAll(".chart")];
  const drawn = new Map();
  // Zoomed figures: the extent of each by id. Whole axes by id, to which zooming out leads.
  const extents = dwellZoom.read();
  const wholes = new Map();
  const tools = new Map();
  const widths = new Map();
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
      dwellTooltip.withoutLineTooltips(specification);
      widths.set(chart, room(chart));
      narrow(specification, room(chart));
      const axes = dwellZoom.axesOf(specification);
      // A figure that a link zooms is drawn once before, because only a drawing has whole axes.
      const extent = wholes.has(id) ? extents.get(id) : null;
      if (extent) dwellZoom.apply(specification, extent);
      const focus = chart.contains(document.activeElement) ? document.activeElement : null;
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
        tooltip: dwellTooltip.handler(specification),
      });
      const plots = dwellZoom.plots(drawing.view);
      if (!wholes.has(id)) {
        wholes.set(id, wholeAxes(plots, axes));
        if (extents.has(id)) {
          drawing.finalize();
          return embed(chart);
        }
      }
      name(chart, specification.description);
      menu(chart, drawing.view, title, `dwell-${id}`);
      const svg = chart.querySelector("svg.marks");
      ownReferences(svg, id);
      dwellTooltip.attach(svg, svg.querySelector("g"), drawing.view, specification);
      if (plots.length && axes.length) zoom(chart, svg, plots, axes, title);
      if (focus) (chart.contains(focus) ? focus : svg).focus({ preventScroll: true });
      chart.classList.add("drawn");
      return drawing;
    } catch (error) {
      fail(chart, "Cannot draw this figure", error);
    }
  }

  /** Width for a figure, as far as it matters. */
  function room(chart) {
    return Math.min(chart.clientWidth || FULL_WIDTH, FULL_WIDTH);
  }

  // On a narrow screen plots get narrower, so that texts keep their size.
  function narrow(specification, room) {
    if (room >= FULL_WIDTH) return;
    const width = Math.max(MIN_PLOT_WIDTH, room - AXIS_WIDTH);
    const limit = (part) => {
      if (part.width > width) part.width = width;
      for (const [channel, encoding] of Object.entries(part.encoding ?? {})) {
        const { axis, legend } = encoding ?? {};
        if (axis) Object.assign(axis, { labelLimit: 96, titleLimit: channel === "x" ? width : Number(part.height) || undefined });
        if (legend) legend.columns = 1;
      }
      for (const inner of [part.layer, part.hconcat, part.vconcat, part.concat, part.spec && [part.spec]]) inner?.forEach(limit);
    };
    limit(specification);
    const config = structuredClone(specification.config);
    config.title = { ...config.title, limit: room };
    config.legend = { ...config.legend, columns: 1, labelLimit: width };
    config.header = { ...config.header, labelLimit: width };
    specification.config = config;
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
    svg.setAttribute("tabindex", "0");
  }

  // The library refers to clip paths and gradients by the address of the page, which zooming changes, and
  // by names that other figures may have.
  function ownReferences(svg, id) {
    for (const part of svg.querySelectorAll("defs [id]")) part.id = `${id}-${part.id}`;
    for (const attribute of ["clip-path", "fill", "stroke"]) {
      for (const part of svg.querySelectorAll(`[${attribute}^="url"]`)) {
        part.setAttribute(attribute, part.getAttribute(attribute).replace(/^(url\W)[^#]*#/, `$1#${id}-`));
      }
    }
  }

  function wholeAxes(plots, axes) {
    return Object.fromEntries(axes.map((axis) => [axis, plots[0]?.scales[axis].domain()]));
  }

  /** Shows a part of a figure: `[from, to]` by axis, or everything. */
  function show(chart, extent) {
    const id = chart.dataset.figure;
    if (extent && Object.keys(extent).length) extents.set(id, extent);
    else if (!extents.delete(id)) return;
    dwellZoom.write(extents);
    redraw(chart);
  }

  // A drag zooms, a double click resets; buttons and keys do the same around the middle.
  function zoom(chart, svg, plots, axes, title) {
    const id = chart.dataset.figure;
    const whole = wholes.get(id);
    const main = axes.includes("x") ? "x" : "y";
    const origin = svg.querySelector("g");
    svg.classList.add("zoomable");

    function limit(axis, [from, to]) {
      const [least, most] = [Math.min(...whole[axis]), Math.max(...whole[axis])];
      return [Math.max(from, least), Math.min(to, most)];
    }

    /** Zooms an axis to relative positions, within the whole axis. */
    function move(axis, from, to) {
      const ends = dwellZoom.part(plots[0], axis, from, to);
      if (!ends) return;
      const extent = { ...extents.get(id) };
      extent[axis] = limit(axis, ends);
      if (!dwellZoom.isWide(plots[0], axis, extent[axis], whole[axis])) return;
      const isWhole = extent[axis][0] <= Math.min(...whole[axis]) && extent[axis][1] >= Math.max(...whole[axis]);
      if (isWhole) delete extent[axis];
      show(chart, extent);
    }

    /** Moves what is shown, but not beyond the end of the axis. */
    function pan(axis, by) {
      const ends = dwellZoom.part(plots[0], axis, by, 1 + by);
      if (ends && limit(axis, ends).every((end, i) => end === ends[i])) move(axis, by, 1 + by);
    }

    const acts = {
      in: () => move(main, 0.25, 0.75),
      out: () => (extents.has(id) ? move(main, -0.5, 1.5) : undefined),
      reset: () => show(chart, null),
    };
    addTools(chart, title, acts, extents.has(id));
    svg.addEventListener("dblclick", acts.reset);
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const pans = { ArrowLeft: ["x", -0.25], ArrowRight: ["x", 0.25], ArrowUp: ["y", 0.25], ArrowDown: ["y", -0.25] };
      const act = { "+": acts.in, "=": acts.in, "-": acts.out, 0: acts.reset }[event.key];
      const [axis, by] = (event.shiftKey && pans[event.key]) || [];
      if (!act && !extents.get(id)?.[axis]) return;
      event.preventDefault();
      if (act) act();
      else pan(axis, by);
    });

    svg.addEventListener("pointerdown", (event) => {
      // Touches scroll the page.
      if (event.button !== 0 || event.pointerType === "touch") return;
      const place = ({ clientX, clientY }) =>
        new DOMPoint(clientX, clientY).matrixTransform(origin.getScreenCTM().inverse());
      const start = place(event);
      const plot = plots.find((it) =>
        start.x >= it.left && start.x <= it.left + it.width && start.y >= it.top && start.y <= it.top + it.height);
      if (!plot) return;
      event.preventDefault();
      svg.focus({ preventScroll: true });
      const frame = origin.appendChild(document.createElementNS(svg.namespaceURI, "rect"));
      frame.setAttribute("class", "zoom-frame");
      let ranges = {};
      const drag = (moved) => {
        const end = place(moved);
        ranges = dragged(plot, axes, start, end);
        const x = ranges.x ?? [0, 1];
        const y = ranges.y ?? [0, 1];
        const isShown = Object.keys(ranges).length > 0;
        frame.setAttribute("x", plot.left + x[0] * plot.width);
        frame.setAttribute("width", isShown ? (x[1] - x[0]) * plot.width : 0);
        frame.setAttribute("y", plot.top + (1 - y[1]) * plot.height);
        frame.setAttribute("height", (y[1] - y[0]) * plot.height);
      };
      const stop = new AbortController();
      const finish = (isDone) => {
        stop.abort();
        frame.remove();
        if (!isDone) return;
        const extent = { ...extents.get(id) };
        for (const [axis, [from, to]] of Object.entries(ranges)) {
          const ends = dwellZoom.part(plot, axis, from, to);
          if (ends && dwellZoom.isWide(plot, axis, ends, whole[axis])) extent[axis] = ends;
        }
        if (Object.keys(ranges).length) show(chart, extent);
      };
      const signal = { signal: stop.signal };
      // On the window, because a drag may end outside the figure.
      window.addEventListener("pointermove", drag, signal);
      window.addEventListener("pointerup", () => finish(true), signal);
      window.addEventListener("pointercancel", () => finish(false), signal);
      window.addEventListener("keydown", (pressed) => pressed.key === "Escape" && finish(false), signal);
    });
  }

  /** Relative positions of a drag by axis; without an axis along which it was short. */
  function dragged(plot, axes, start, end) {
    const ranges = {};
    const within = (value) => Math.max(0, Math.min(1, value));
    for (const axis of axes) {
      if (Math.abs(end[axis] - start[axis]) < 10) continue;
      const relative = ({ x, y }) => within(axis === "x" ? (x - plot.left) / plot.width : 1 - (y - plot.top) / plot.height);
      ranges[axis] = [relative(start), relative(end)].sort((a, b) => a - b);
    }
    return ranges;
  }

  /** Adds the buttons of a figure below its drawing. */
  function addTools(chart, title, acts, isZoomed) {
    let bar = tools.get(chart);
    if (!bar) {
      bar = document.createElement("span");
      bar.className = "zoom-tools";
      for (const [act, text] of [["in", "Zoom in"], ["out", "Zoom out"], ["reset", "Reset zoom"]]) {
        const button = bar.appendChild(document.createElement("button"));
        button.type = "button";
        button.dataset.act = act;
        button.textContent = text;
        button.setAttribute("aria-label", `${text}: ${title}`);
      }
      const link = bar.appendChild(document.createElement("a"));
      link.textContent = "Link to this view";
      link.setAttribute("aria-label", `Link to this view: ${title}`);
      tools.set(chart, bar);
    }
    for (const button of bar.querySelectorAll("button")) {
      button.onclick = acts[button.dataset.act];
      button.hidden = !isZoomed && button.dataset.act !== "in";
    }
    const link = bar.querySelector("a");
    link.hidden = !isZoomed;
    link.href = dwellZoom.address(extents, chart.dataset.figure);
    chart.append(bar);
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
  let resized;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      charts.filter((chart) => drawn.has(chart) && widths.get(chart) !== room(chart)).forEach(redraw);
    }, RESIZE_TIMEOUT);
  });
  window.addEventListener("beforeprint", () => charts.forEach(draw));
  begin();
})();
