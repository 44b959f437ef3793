// The form of comparisons sends one short address: runs=BASELINE,OTHER,...

export function compareSelection(): void {
  for (const form of document.querySelectorAll<HTMLFormElement>("form[data-compare]")) {
    form.addEventListener("submit", (event) => {
      const data = new FormData(form);
      const runs = new Set([data.get("baseline"), ...data.getAll("runs")].filter(Boolean).map(String));
      event.preventDefault();
      const address = new URL(form.action);
      // Commas stay readable.
      const query = [`runs=${[...runs].map(encodeURIComponent).join(",")}`];
      const metric = data.get("metric");
      if (metric) query.push(`metric=${encodeURIComponent(String(metric))}`);
      address.search = query.join("&");
      location.assign(address);
    });
  }
}
