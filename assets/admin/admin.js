// Renews the parts of a page that are marked data-live. Pages are whole without it.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh);
  if (!seconds) return;
  const renew = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: { "Assay-Refresh": "1" }, redirect: "manual" });
      if (answer.type === "opaqueredirect") return location.reload();
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const now = page.getElementById(old.id);
        const busy = old.contains(document.activeElement) || !getSelection().isCollapsed;
        if (now && !busy && now.innerHTML !== old.innerHTML) old.replaceChildren(...now.childNodes);
      }
    } catch {
      // The gateway does not answer: what is shown stays.
    }
  };
  setInterval(renew, seconds * 1000);
})();
