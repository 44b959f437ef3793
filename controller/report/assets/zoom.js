// Zooming into figures: which axes of a specification can be zoomed, how a part of them is shown, and
// how the address of the page keeps it.
const dwellZoom = (() => {
  "use strict";
  /** Parameter of the address: `ID_x_FROM_TO_y_FROM_TO`, once per zoomed figure. */
  const PARAMETER = "zoom";
  /** Smallest part of an axis that a zoom shows, relative to the whole axis in pixels. */
  const MIN_PART = 1e-4;
  const AXES = ["x", "y"];

  /** The specifications inside a specification. */
  const parts = (spec) =>
    [spec.layer, spec.hconcat, spec.vconcat, spec.concat, spec.spec && [spec.spec]].flatMap((all) => all ?? []);

  /** Calls `visit(axis, encoding)` for each quantitative axis of a specification and its parts. */
  function eachAxis(spec, visit) {
    for (const axis of AXES) {
      const encoding = spec.encoding?.[axis];
      if (encoding?.type === "quantitative") visit(axis, encoding);
    }
    parts(spec).forEach((inner) => eachAxis(inner, visit));
  }

  /** Whether a specification has several plots whose scales need not be equal. */
  const hasPlots = (spec) => Boolean(spec.hconcat || spec.vconcat || spec.concat || spec.resolve?.scale);

  /** The axes that can be zoomed: those that have the same quantitative scale in every plot. */
  function axesOf(spec) {
    const domains = { x: new Set(), y: new Set() };
    eachAxis(spec, (axis, { scale }) => domains[axis].add(JSON.stringify(scale?.domain ?? null)));
    const isZoomable = (axis) =>
      domains[axis].size === 1 && (!hasPlots(spec) || !domains[axis].has("null"));
    return AXES.filter(isZoomable);
  }

  /** Limits the axes of a specification to an extent: `[from, to]` by axis. */
  function apply(spec, extent) {
    eachAxis(spec, (axis, encoding) => {
      if (!extent[axis]) return;
      const { type, base, exponent, constant, reverse } = encoding.scale ?? {};
      // Logarithmic scales have no zero.
      const zero = type === "log" ? undefined : false;
      encoding.scale = { type, base, exponent, constant, reverse, zero, domain: extent[axis], nice: false };
      for (const key of Object.keys(encoding.scale)) {
        if (encoding.scale[key] === undefined) delete encoding.scale[key];
      }
      // The whole axis has chosen ticks; a part of it has those of the library.
      if (encoding.axis) delete encoding.axis.values;
    });
    clip(spec);
  }

  function clip(spec) {
    if (spec.mark) spec.mark = { ...(typeof spec.mark === "string" ? { type: spec.mark } : spec.mark), clip: true };
    parts(spec).forEach(clip);
  }

  /** The plots of a drawing: position and size in pixels, and the scales of both axes. */
  function plots(view) {
    const found = [];
    const visit = (group, prefix, left, top) => {
      const scales = {};
      for (const axis of AXES) scales[axis] = scaleOf(group.context, prefix, axis);
      const { width, height } = group;
      if (scales.x && scales.y && width > 0 && height > 0) found.push({ left, top, width, height, scales, group });
      for (const mark of group.items ?? []) {
        if (mark.marktype !== "group" || mark.role !== "scope") continue;
        const name = (mark.name ?? "").replace(/_?(group|cell)$/, "");
        for (const inner of mark.items) visit(inner, name, left + (inner.x ?? 0), top + (inner.y ?? 0));
      }
    };
    for (const root of view.scenegraph().root.items) visit(root, "", root.x ?? 0, root.y ?? 0);
    // Plots inside plots are the ones that have the marks.
    return found.filter((plot) => !found.some((other) => other !== plot && other.group.mark?.group === plot.group));
  }

  /** The scale of a plot: its own, or the one that it shares with the plots beside it. */
  function scaleOf(context, prefix, axis) {
    const words = prefix ? prefix.split("_") : [];
    const names = words.map((_, i) => `${words.slice(0, words.length - i).join("_")}_${axis}`);
    for (const name of [...names, `child_${axis}`, axis]) {
      const scale = context?.scales[name]?.value;
      if (typeof scale === "function") return scale;
    }
    return null;
  }

  /** The part of an axis between two relative positions, where 0 to 1 is what is shown now. */
  function part(plot, axis, from, to) {
    const size = axis === "x" ? plot.width : plot.height;
    // Delays grow upwards, pixels downwards.
    const pixels = axis === "x" ? [from * size, to * size] : [(1 - from) * size, (1 - to) * size];
    const values = pixels.map((pixel) => plot.scales[axis].invert?.(pixel));
    if (!values.every(Number.isFinite)) return null;
    return values.map((value) => Number(value.toPrecision(6))).sort((a, b) => a - b);
  }

  /** Whether an extent shows something: it is neither empty nor too small for its axis. */
  function isWide(plot, axis, [from, to], whole) {
    const scale = plot.scales[axis].copy().domain(whole ?? plot.scales[axis].domain());
    const size = axis === "x" ? plot.width : plot.height;
    return from < to && Math.abs(scale(to) - scale(from)) >= MIN_PART * size;
  }

  /** The extents of figures in the address of the page, by id. */
  function read() {
    const extents = new Map();
    for (const text of new URL(location.href).searchParams.getAll(PARAMETER)) {
      const match = /^([a-z0-9-]+)((?:_[xy]_[^_]+_[^_]+)+)$/.exec(text);
      if (!match) continue;
      const extent = {};
      for (const [, axis, from, to] of match[2].matchAll(/_([xy])_([^_]+)_([^_]+)/g)) {
        const ends = [Number(from), Number(to)];
        if (ends.every(Number.isFinite) && ends[0] < ends[1]) extent[axis] = ends;
      }
      if (Object.keys(extent).length) extents.set(match[1], extent);
    }
    return extents;
  }

  /** The address of the page with these extents, at the figure of this id if there is one. */
  function address(extents, figure) {
    const url = new URL(location.href);
    url.searchParams.delete(PARAMETER);
    for (const [id, extent] of extents) {
      const ends = AXES.filter((axis) => extent[axis]).map((axis) => `_${axis}_${extent[axis].join("_")}`);
      url.searchParams.append(PARAMETER, id + ends.join(""));
    }
    if (figure) url.hash = `figure-${figure}`;
    return url.href;
  }

  /** Writes the extents to the address of the page. */
  function write(extents) {
    const url = address(extents);
    try {
      if (url !== location.href) history.replaceState(history.state, "", url);
    } catch {
      // Some browsers refuse it for files; the link to the view has the address, too.
    }
  }

  return { axesOf, apply, plots, part, isWide, read, write, address };
})();
