// The page of an experiment while it runs. Figures of the current trial come as events; other parts
// of the page are fetched when they change.
import { byId, delay, setText, throttled } from "./page";
import { type Progress, Timeline } from "./timeline";

/** Interval of drawing figures, in milliseconds. */
const DRAW_INTERVAL = 100;
/** Interval of fetching the parts that the server renders. */
const FETCH_INTERVAL = 1_000;
/** Interval of announcements to screen readers. */
const ANNOUNCE_INTERVAL = 15_000;

/** Time until a refused connection is tried again. */
const RECONNECT_INTERVAL = 3_000;

/** Parts that the server renders. `controls` is replaced only with the state, so that it keeps the focus. */
const PARTS = ["current", "trials", "log"];
const STATE_PARTS = ["state", "controls", "progress"];

function lostText({ lost, sent }: Progress): string {
  if (lost === null) return "-";
  return sent ? `${lost} (${((lost * 100) / sent).toFixed(2)} %)` : String(lost);
}

export function live(): void {
  const experiment = byId("experiment");
  if (!experiment || experiment.dataset.live === undefined) return;
  const id = experiment.dataset.id!;
  const box = byId("timeline");
  const timeline = box ? new Timeline(box) : null;
  let progress: Progress | null = null;
  let known = byId("state")?.dataset.state;

  const draw = throttled(() => {
    timeline?.draw();
    if (!progress || String(progress.trial) !== byId("trial")?.textContent) return;
    setText("p50", delay(progress.p50_ns));
    setText("p99", delay(progress.p99_ns));
    setText("sent", String(progress.sent ?? "-"));
    setText("lost", lostText(progress));
  }, DRAW_INTERVAL);

  const announce = throttled(() => setText("announce", byId("done")?.textContent ?? ""), ANNOUNCE_INTERVAL);

  async function fetchParts(): Promise<void> {
    const answer = await fetch(location.pathname, { cache: "no-store" }).catch(() => null);
    if (!answer?.ok) return;
    if (answer.redirected) return void lost("Log in again; the run goes on.");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const state = page.getElementById("state")?.dataset.state;
    // Another page answered, such as that of the login.
    if (!state) return;
    const parts = state === known ? PARTS : [...PARTS, ...STATE_PARTS];
    for (const part of parts) replace(part, page.getElementById(part));
    const [bar, now] = [document.querySelector("progress"), page.querySelector("progress")];
    if (bar && now) {
      bar.max = now.max;
      bar.value = now.value;
    }
    setText("done", page.getElementById("done")?.textContent ?? "");
    draw();
    if (state !== known) {
      known = state;
      setText("announce", `The experiment is ${state}. ${byId("done")?.textContent ?? ""}`);
    } else announce();
  }

  /** Replaces a part if it differs, and keeps the focus and the scroll position in it. */
  function replace(part: string, by: HTMLElement | null): void {
    const now = byId(part);
    if (!now || !by || now.innerHTML === by.innerHTML) return;
    const scrolled = now.querySelector(".scroll, .log")?.scrollTop;
    const hadFocus = now.contains(document.activeElement);
    now.replaceWith(by);
    const box = by.querySelector<HTMLElement>(".scroll, .log");
    if (box && scrolled) box.scrollTop = scrolled;
    if (hadFocus) by.querySelector<HTMLElement>("button, a, [tabindex]")?.focus();
  }

  const refresh = throttled(() => void fetchParts(), FETCH_INTERVAL);
  const connection = byId("connection");
  let events: EventSource | null = null;

  function lost(text: string): void {
    setText("connection", text);
    if (connection) connection.hidden = false;
  }

  function connect(): void {
    disconnect();
    if (document.hidden) return;
    events = new EventSource(`/api/v1/experiments/${encodeURIComponent(id)}/events`);
    events.addEventListener("open", () => {
      if (connection) connection.hidden = true;
    });
    events.addEventListener("error", () => {
      lost("Connection lost; the run goes on. Reconnecting ...");
      // After an answer that is no event stream, browsers do not try again. The page says why.
      if (events?.readyState !== EventSource.CLOSED) return;
      void fetchParts();
      window.setTimeout(connect, RECONNECT_INTERVAL);
    });
    events.addEventListener("trial", (event) => {
      const { event: kind, trial, at } = JSON.parse(event.data);
      if (kind === "trial") timeline?.begin(trial, at);
    });
    events.addEventListener("progress", (event) => {
      progress = JSON.parse(event.data);
      timeline?.add(progress!);
      draw();
    });
    for (const kind of ["trial", "log", "state"]) events.addEventListener(kind, refresh);
    events.addEventListener("gone", refresh);
  }

  function disconnect(): void {
    events?.close();
    events = null;
  }

  connect();
  // A hidden page needs no events, and browsers open few connections to one server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return disconnect();
    connect();
    refresh();
  });
  window.addEventListener("pagehide", disconnect);
}
