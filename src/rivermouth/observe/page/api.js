/* Where the numbers of runs come from: the server of the page, or, in a static report, the file itself. */
"use strict";

rivermouth.api = (() => {
  const embedded = document.getElementById("embedded");

  async function get(path) {
    const answer = await fetch(path, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status} for ${path}`);
    return answer.json();
  }

  const live = {
    runs: () => get("api/runs"),
    run: (key, after) => get(`api/runs/${encodeURIComponent(key)}?after=${after}`),
    shapes: (key, operator) =>
      get(`api/runs/${encodeURIComponent(key)}/shapes/${encodeURIComponent(operator)}`),
  };

  function embeddedApi(data) {
    return {
      runs: async () => data.runs.map((run) => run.page.run),
      run: async (key) => data.runs.find((run) => run.page.run.key === key).page,
      shapes: async (key, operator) =>
        data.runs.find((run) => run.page.run.key === key).shapes[operator],
    };
  }

  const data = embedded && JSON.parse(embedded.textContent);
  return { ...(data ? embeddedApi(data) : live), isStatic: Boolean(data), summary: data?.summary };
})();
