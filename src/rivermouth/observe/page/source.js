/* Where a run's numbers come from: the page's own server, or, in a report, the file itself. */
"use strict";

rivermouth.source = (() => {
  const held = document.getElementById("held");

  async function asked(path) {
    const answer = await fetch(path, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status} for ${path}`);
    return answer.json();
  }

  const live = {
    runs: () => asked("api/runs"),
    run: (key, after) => asked(`api/runs/${encodeURIComponent(key)}?after=${after}`),
    shapes: (key, operator) =>
      asked(`api/runs/${encodeURIComponent(key)}/shapes/${encodeURIComponent(operator)}`),
  };

  function still(data) {
    return {
      runs: async () => data.runs.map((run) => run.page.run),
      run: async (key) => data.runs.find((run) => run.page.run.key === key).page,
      shapes: async (key, operator) =>
        data.runs.find((run) => run.page.run.key === key).shapes[operator],
    };
  }

  const data = held && JSON.parse(held.textContent);
  return { ...(data ? still(data) : live), isStill: Boolean(data), summary: data?.summary };
})();
