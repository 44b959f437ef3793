// What the islands share.

/** Element with this id; null on pages without it. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T | null {
  return document.getElementById(id) as T | null;
}

/** Calls `work` when no call followed for some milliseconds. */
export function debounced(work: () => void, ms: number): () => void {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
}

/** Calls `work` at most once per interval, and again after calls during the interval. */
export function throttled(work: () => void, ms: number): () => void {
  let timer = 0;
  let last = -Infinity;
  const run = () => {
    timer = 0;
    last = performance.now();
    work();
  };
  return () => {
    if (timer) return;
    const rest = ms - (performance.now() - last);
    if (rest <= 0) run();
    else timer = window.setTimeout(run, rest);
  };
}

/** Formats a delay as the server does. */
export function delay(ns: number | null): string {
  if (ns === null) return "-";
  if (Math.abs(ns) < 1e3) return `${ns} ns`;
  return Math.abs(ns) < 1e6 ? `${(ns / 1e3).toFixed(2)} us` : `${(ns / 1e6).toFixed(2)} ms`;
}

/** Replaces the text of an element if it differs, so that nothing is announced or drawn in vain. */
export function setText(id: string, text: string): void {
  const element = byId(id);
  if (element && element.textContent !== text) element.textContent = text;
}
