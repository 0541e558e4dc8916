// Shows the page's present content every few seconds, without losing focus, scroll position or what is being typed.
"use strict";
(() => {
  const seconds = Number(document.currentScript.dataset.seconds);
  const byId = (id) => document.getElementById(id);
  const toggle = byId("fresh-toggle");
  const problem = byId("fresh-problem");
  const loaded = location.href;
  let running = true;
  let lastSuccess = new Date();
  let times = 0;

  function replace(page) {
    for (const id of ["content", "fresh-text"]) {
      const focused = byId(id).contains(document.activeElement) ? document.activeElement : null;
      byId(id).replaceChildren(...page.getElementById(id).childNodes);
      if (focused && focused.id) byId(focused.id)?.focus({ preventScroll: true });
    }
    document.title = page.title;
    byId("content").dataset.refreshed = ++times;
  }

  function report(text) {
    if (problem.textContent === text) return; // announced once, not every few seconds
    problem.textContent = text;
    problem.hidden = text === "";
  }

  async function refresh() {
    try {
      const answer = await fetch(loaded, { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) return location.reload();
      if (!answer.ok) throw new Error(answer.status);
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      lastSuccess = new Date();
      report("");
    } catch {
      report("Not refreshed since " + lastSuccess.toISOString().slice(11, 19) + " UTC: `deltarelay serve` does not answer.");
    }
  }

  async function repeat() {
    if (running && !document.hidden) await refresh();
    setTimeout(repeat, seconds * 1000);
  }

  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    running = !running;
    toggle.textContent = running ? "Stop refreshing" : "Refresh again";
    if (running) refresh();
  });
  document.addEventListener("visibilitychange", () => {
    if (running && !document.hidden) refresh();
  });
  setTimeout(repeat, seconds * 1000);
})();
