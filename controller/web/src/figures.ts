// Data of figures. The report's page.js, which runs after this script, reads it from the page unless
// the page provides a function.

/** Lets page.js load the data of an element from the address in its `data-source`. */
export function provideFigures(): void {
  const load = async (id: string) => {
    const source = document.getElementById(id)?.dataset.source;
    if (!source) throw new Error(`no data-source of ${id}`);
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    // A session that ended leads to the page of the login.
    if (answer.redirected) throw new Error("log in again");
    return answer.json();
  };
  Object.assign(window, { dwellData: load });
}
