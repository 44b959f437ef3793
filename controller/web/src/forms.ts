// Forms that take a while say so, and are not sent twice.

export function busyForms(): void {
  // On the document, so that it is true of forms that a script adds later.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.dataset.busy === undefined) return;
    if (form.dataset.sent) {
      event.preventDefault();
      event.stopPropagation();
      return;
    }
    const button = event.submitter;
    // The check of a plan is quick, and its page is shown again.
    if (button instanceof HTMLButtonElement && button.value === "check") return;
    form.dataset.sent = "yes";
    if (!(button instanceof HTMLButtonElement)) return;
    const text = button.textContent;
    button.textContent = form.dataset.busy;
    // A page that the browser shows again after "back" is usable.
    window.addEventListener("pageshow", () => {
      delete form.dataset.sent;
      button.textContent = text;
    }, { once: true });
  }, true);
}
