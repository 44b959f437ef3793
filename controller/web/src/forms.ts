// Forms that take a while say so, and are not sent twice.

export function busyForms(): void {
  for (const form of document.querySelectorAll<HTMLFormElement>("form[data-busy]")) {
    form.addEventListener("submit", (event) => {
      if (form.dataset.sent) {
        event.preventDefault();
        return;
      }
      const button = event.submitter;
      // The check of a plan is quick, and its page is shown again.
      if (button instanceof HTMLButtonElement && button.value === "check") return;
      form.dataset.sent = "yes";
      if (!(button instanceof HTMLButtonElement)) return;
      const text = button.textContent;
      button.textContent = form.dataset.busy ?? text;
      // A page that the browser shows again after "back" is usable.
      window.addEventListener("pageshow", () => {
        delete form.dataset.sent;
        button.textContent = text;
      }, { once: true });
    });
  }
}
