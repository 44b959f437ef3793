// The page of a run in progress says how many trials have ended, and shows the results at the end.
import { byId, setText } from "./page";

export function runProgress(): void {
  const run = byId("run-progress")?.dataset.run;
  if (!run) return;
  const events = new EventSource(`/api/v1/runs/${encodeURIComponent(run)}/events`);
  events.addEventListener("state", (event) => {
    const known = JSON.parse(event.data);
    if (known.state !== "running") {
      events.close();
      // A note that is being written is not lost.
      if (byId<HTMLTextAreaElement>("note")?.value) {
        setText("run-state", `This run is ${known.state}:`);
        setText("run-done", "add the note to see the results");
      } else location.reload();
      return;
    }
    const ended = known.trials_finished + known.trials_failed + known.trials_not_run;
    setText("run-done", `${ended} of ${known.trials} trials have ended`);
  });
  window.addEventListener("pagehide", () => events.close());
}
