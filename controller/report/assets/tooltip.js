// The values under the pointer: of the mark that it is on, or of the nearest point of a line. The
// keyboard steps through the same values.
const dwellTooltip = (() => {
  "use strict";
  /** Distance in pixels at which a point of a line attracts the pointer. */
  const REACH = 30;
  /** Maximum number of stops of the keyboard in a figure. */
  const MAX_STOPS = 200;
  let box, status;

  function element(name, parent, attributes = {}) {
    const made = parent.appendChild(document.createElement(name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** Shows values by label beside a point of the window. */
  function show(values, x, y) {
    box ??= element("div", document.body, { class: "figure-tooltip", "aria-hidden": "true" });
    box.replaceChildren();
    const table = element("table", box);
    for (const [label, value] of Object.entries(values)) {
      const row = element("tr", table);
      element("td", row, { class: "label" }).textContent = `${label}:`;
      element("td", row).textContent = value;
    }
    box.classList.add("visible");
    const { width, height } = box.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    const top = y + 14 + height > innerHeight ? y - 14 - height : y + 14;
    // The style sheet's policy allows properties that a script sets.
    box.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
    box.style.top = `${Math.max(4, top)}px`;
  }

  function hide() {
    box?.classList.remove("visible");
  }

  /** The specifications inside a specification. */
  const parts = (spec) =>
    [spec.layer, spec.hconcat, spec.vconcat, spec.concat, spec.spec && [spec.spec]].flatMap((all) => all ?? []);

  /** Labels, units and formats of the fields of a specification, from its axes and legends. */
  function labelsOf(spec, labels = new Map()) {
    for (const [channel, encoding] of Object.entries(spec.encoding ?? {})) {
      if (!encoding?.field || !/^([xy]2?|color|fill|stroke|shape|detail|strokeDash|size)$/.test(channel)) continue;
      // The end of a bar has the axis of its beginning.
      const guide = encoding.axis ?? encoding.legend ?? spec.encoding[channel[0]]?.axis ?? {};
      const title = guide.title || encoding.title || "";
      const [name, note = ""] = title.split(/ *[[\]]/);
      const unit = /^[^\s,.]{1,8}(?=,|$)/.exec(note)?.[0] ?? "";
      const isPosition = /^[xy]2?$/.test(channel);
      // Fields that share the vertical axis keep their names.
      const label = name && (channel === "x" || !isPosition) ? name : encoding.field;
      if (labels.get(encoding.field)?.isTitled || guide.labelExpr) continue;
      labels.set(encoding.field, { label, unit: isPosition ? unit : "", format: guide.format ?? "", isTitled: Boolean(name) });
    }
    parts(spec).forEach((inner) => labelsOf(inner, labels));
    const facet = spec.facet?.row?.field ?? spec.facet?.field;
    if (facet && !labels.has(facet)) labels.set(facet, { label: facet, unit: "", format: "" });
    return labels;
  }

  function text(value, { unit, format }) {
    if (typeof value !== "number") return String(value);
    if (format.endsWith("%")) return `${Number((value * 100).toPrecision(6))} %`;
    const number = Number(value.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 6 });
    return unit ? `${number} ${unit}` : number;
  }

  /** The values of a row of data that the figure shows. */
  function valuesOf(datum, labels) {
    const values = {};
    for (const [field, description] of labels) {
      const value = datum[field];
      if (value !== null && value !== undefined) values[description.label] = text(value, description);
    }
    return values;
  }

  /** The values of a mark, with the labels of the figure where the library has names of fields. */
  function markValues(tooltip, labels) {
    if (typeof tooltip !== "object") return { value: tooltip };
    const shown = Object.entries(tooltip).filter(([name]) => !name.endsWith("_sort_index"));
    return Object.fromEntries(shown.map(([name, value]) => [/^[xy]$/.test(name) ? (labels.get(name)?.label ?? name) : name, value]));
  }

  /** Lines and areas have one shape for many rows of data: their tooltips would show the first row. */
  function withoutLineTooltips(spec) {
    if (["line", "area"].includes(spec.mark?.type)) delete spec.mark.tooltip;
    parts(spec).forEach(withoutLineTooltips);
  }

  /** Points with values in a drawing, in pixels from its origin. */
  function stops(view, labels) {
    const found = [];
    const visit = (group, left, top) => {
      for (const mark of group.items ?? []) {
        const isLine = mark.marktype === "line" || mark.marktype === "area";
        for (const item of mark.items) {
          if (mark.marktype === "group") {
            if (mark.role === "scope") visit(item, left + (item.x ?? 0), top + (item.y ?? 0));
            continue;
          }
          if (!isLine && !item.tooltip) continue;
          const values = isLine ? valuesOf(item.datum, labels) : markValues(item.tooltip, labels);
          if (!Object.keys(values).length) continue;
          // Bars and boxes are shown at their middle.
          const at = isLine || mark.marktype === "symbol" ? item : middle(item.bounds);
          const [x, y] = [at.x, at.y];
          const isInside = x >= -1 && y >= -1 && x <= group.width + 1 && y <= group.height + 1;
          if (isInside) found.push({ x: left + x, y: top + y, values, isLine });
        }
      }
    };
    for (const root of view.scenegraph().root.items) visit(root, root.x ?? 0, root.y ?? 0);
    return found;
  }

  const middle = ({ x1, y1, x2, y2 }) => ({ x: (x1 + x2) / 2, y: (y1 + y2) / 2 });

  /** Shows the values of a drawing at the pointer and by keyboard. `origin` is the group of all marks. */
  function attach(svg, origin, view, spec) {
    const labels = labelsOf(spec);
    let all, chosen = -1, point;
    const points = () => (all ??= stops(view, labels).sort((a, b) => a.x - b.x || a.y - b.y));

    function choose(stop) {
      point ??= origin.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
      point.setAttribute("class", "figure-point");
      for (const [name, value] of [["cx", stop.x], ["cy", stop.y], ["r", 5]]) point.setAttribute(name, value);
      const at = new DOMPoint(stop.x, stop.y).matrixTransform(origin.getScreenCTM());
      show(stop.values, at.x, at.y);
    }

    function clear() {
      point?.remove();
      point = undefined;
      hide();
    }

    svg.addEventListener("pointermove", (event) => {
      // Marks with values of their own are shown by the library's event.
      if (event.buttons || event.target.__data__?.tooltip) return void (point && clear());
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(origin.getScreenCTM().inverse());
      let nearest = null, best = REACH ** 2;
      for (const stop of points()) {
        const distance = (stop.x - at.x) ** 2 + (stop.y - at.y) ** 2;
        if (stop.isLine && distance < best) [nearest, best] = [stop, distance];
      }
      if (nearest) choose(nearest);
      else if (point) clear();
    });
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("blur", () => {
      chosen = -1;
      clear();
    });
    svg.addEventListener("keydown", (event) => {
      const every = Math.ceil(points().length / MAX_STOPS);
      const steps = { ArrowRight: every, ArrowLeft: -every, Home: -Infinity, End: Infinity };
      if (event.key === "Escape") return clear();
      if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || !(event.key in steps) || !points().length) return;
      event.preventDefault();
      const first = chosen < 0 && steps[event.key] > 0 && event.key !== "End" ? 0 : chosen + steps[event.key];
      chosen = Math.max(0, Math.min(points().length - 1, first));
      choose(points()[chosen]);
      status ??= element("p", document.body, { class: "hidden", role: "status" });
      status.textContent = Object.entries(points()[chosen].values).map(([label, value]) => `${label} ${value}`).join(", ");
    });
  }

  /** Returns the function that the library calls to show the values of a mark. */
  function handler(spec) {
    const labels = labelsOf(spec);
    return (_, event, item, value) => {
      if (value) show(markValues(value, labels), event.clientX, event.clientY);
      else hide();
    };
  }

  return { attach, handler, withoutLineTooltips };
})();
