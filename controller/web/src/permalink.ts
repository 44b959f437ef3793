// The address has the state of the page: open sections, so that a link shows what its sender saw.

const PARAMETER = "open";

function sections(): HTMLDetailsElement[] {
  return [...document.querySelectorAll<HTMLDetailsElement>("main details")];
}

/** Name of a section in the address: its own, or that of the part of the page with its place in it. */
function nameOf(details: HTMLDetailsElement): string | null {
  if (details.dataset.keep) return details.dataset.keep;
  const part = details.closest<HTMLElement>("article[id], section[id]");
  if (!part || details.closest(".chart")) return null;
  return `${part.id}.${[...part.querySelectorAll("details")].indexOf(details)}`;
}

export function keepDetails(): void {
  const address = new URL(location.href);
  const wanted = new Set((address.searchParams.get(PARAMETER) ?? "").split("~").filter(Boolean));
  const initial = new Map(sections().map((details) => [details, details.open]));
  for (const details of sections()) {
    const name = nameOf(details);
    if (name && wanted.has(name)) details.open = true;
  }
  if (wanted.size && location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
  document.querySelector("main")?.addEventListener("toggle", () => {
    const open = sections().filter((details) => details.open && !initial.get(details));
    const names = open.map(nameOf).filter((name) => name !== null);
    const now = new URL(location.href);
    if (names.length) now.searchParams.set(PARAMETER, names.join("~"));
    else now.searchParams.delete(PARAMETER);
    if (now.href !== location.href) history.replaceState(history.state, "", now);
  }, true);
}
