// Data of figures. The report's page.js, which runs after this script, reads it from the page unless
// the page provides a function.

/** Lets page.js load the data of an element from the address in its `data-source`. */
export function provideFigures(): void {
  const load = async (id: string) => {
    const source = document.getElementById(id)?.dataset.source;
    if (!source) throw new Error(`no data-source of ${id}`);
    return (await fetch(source)).json();
  };
  Object.assign(window, { dwellData: load });
}
