// The editor checks a plan as it is written. The server renders the result; this replaces it.
import { byId, debounced, setText } from "./page";

const CHECK_DELAY = 300;

export function editor(): void {
  const form = byId<HTMLFormElement>("editor");
  const text = byId<HTMLTextAreaElement>("plan");
  const result = byId("check");
  if (!form || !text || !result) return;
  let request: AbortController | null = null;
  /** The text that the server checked last. */
  let checked = text.defaultValue;

  async function check(): Promise<void> {
    request?.abort();
    const own = (request = new AbortController());
    const sent = text!.value;
    const fields = new URLSearchParams();
    new FormData(form!).forEach((value, name) => fields.append(name, String(value)));
    try {
      const answer = await fetch("/experiments/check", {
        method: "POST",
        body: fields,
        headers: { "X-Dwell-CSRF": fields.get("csrf") ?? "" },
        signal: own.signal,
      });
      const html = await answer.text();
      if (own.signal.aborted) return;
      if (answer.ok && !answer.redirected) {
        checked = sent;
        show(html);
      } else fail("The server refused to check the plan; the result below is of an earlier text. Use the button Check.");
    } catch {
      if (!own.signal.aborted) fail("The server does not answer; the result below is of an earlier text.");
    }
  }

  function fail(text: string): void {
    setText("check-failed", text);
    byId("check-failed")!.hidden = false;
  }

  function show(html: string): void {
    // The focus must not be lost while the part that has it is replaced.
    const focused = result!.contains(document.activeElement) ? document.activeElement?.id : "";
    result!.innerHTML = html;
    byId("check-failed")!.hidden = true;
    if (focused) byId(focused)?.focus();
    places();
    const heading = result!.querySelector("h2")?.textContent?.trim() ?? "";
    const first = result!.querySelector(".mistakes li")?.textContent?.trim() ?? "";
    setText("check-status", first ? `${heading}: ${first}` : heading);
    text!.setAttribute("aria-invalid", String(first !== ""));
  }

  // Each place of a mistake becomes a button that selects it in the text.
  function places(): void {
    for (const place of result!.querySelectorAll<HTMLElement>("[data-line]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = place.textContent;
      const [line, column, width] = [place.dataset.line, place.dataset.column, place.dataset.width].map(Number);
      button.addEventListener("click", () => select(line, column, width));
      place.replaceWith(button);
    }
  }

  function select(line: number, column: number, width: number): void {
    const lines = text!.value.split("\n");
    const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    // Columns count characters; positions in the field count UTF-16 units.
    const at = [...(lines[line - 1] ?? "")];
    const start = before + at.slice(0, column - 1).join("").length;
    const end = start + at.slice(column - 1, column - 1 + Math.max(1, width)).join("").length;
    text!.focus();
    text!.setSelectionRange(start, end);
    const height = parseFloat(getComputedStyle(text!).lineHeight);
    text!.scrollTop = Math.max(0, (line - 1) * height - text!.clientHeight / 2);
    caret();
  }

  function caret(): void {
    const before = text!.value.slice(0, text!.selectionStart).split("\n");
    setText("caret", `line ${before.length}, column ${[...before[before.length - 1]].length + 1}`);
  }

  const soon = debounced(() => void check(), CHECK_DELAY);
  text.addEventListener("input", soon);
  byId("settings")?.addEventListener("input", soon);
  document.addEventListener("selectionchange", () => {
    if (document.activeElement === text) caret();
  });
  places();
  // A text that the browser restored, before this script or after it, was not checked by the server.
  if (text.value !== checked) soon();
  window.addEventListener("pageshow", () => {
    if (text.value !== checked) soon();
  });
}
