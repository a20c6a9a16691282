// The page works without this script. It reads the figures again, and adds keys.
"use strict";
(() => {
  const EACH_MS = 3000;
  const live = () => [...document.querySelectorAll("[data-live][id]")];
  let busy = false;

  async function refresh() {
    if (busy || document.hidden || !document.querySelector("main [data-live]")) return;
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Live": "1" }, redirect: "error" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const error = page.querySelector(".error");
      if (!answer.ok) return old(error ? error.textContent : `The console answers ${answer.status}.`);
      for (const here of live()) {
        const fresh = page.getElementById(here.id);
        if (!fresh || fresh.innerHTML === here.innerHTML) continue;
        const focused = here.contains(document.activeElement) ? document.activeElement : null;
        const scrolled = [...here.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
        const href = focused && focused.getAttribute("href");
        const unfolded = new Map([...here.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
        const group = focused && focused.matches("summary") && focused.parentNode.id;
        const ticked = new Set([...here.querySelectorAll("input:checked")].map((each) => each.value));
        here.replaceChildren(...fresh.childNodes);
        here.querySelectorAll("input[type=checkbox]").forEach((each) => (each.checked = ticked.has(each.value)));
        here.querySelectorAll("details[id]").forEach((each) => (each.open = unfolded.get(each.id) ?? each.open));
        if (group && document.getElementById(group)) document.getElementById(group).querySelector("summary").focus({ preventScroll: true });
        here.querySelectorAll(".scroll").forEach((each, place) => (each.scrollLeft = scrolled[place] || 0));
        if (href) {
          const again = [...here.querySelectorAll("a")].find((each) => each.getAttribute("href") === href);
          if (again) again.focus({ preventScroll: true });
        }
      }
      document.body.classList.remove("offline");
    } catch {
      old("The console does not answer, or the login has ended.");
    } finally {
      busy = false;
    }
  }

  // The figures stay, and the page says since when they are old, and why.
  function old(reason) {
    document.body.classList.add("offline");
    const fresh = document.getElementById("fresh");
    if (!fresh) return;
    const time = fresh.querySelector("time");
    if (time) time.textContent = time.title;
    const tag = document.createElement("span");
    tag.className = "tag critical";
    tag.textContent = "Old figures";
    fresh.replaceChildren(tag, ...(time ? [" of ", time] : []), ". " + reason);
  }

  function move(step) {
    const rows = [...document.querySelectorAll("a[data-row]")];
    if (!rows.length) return;
    const here = rows.indexOf(document.activeElement);
    const next = here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step;
    rows[Math.min(Math.max(next, 0), rows.length - 1)].focus();
  }

  const keys = document.getElementById("keys");
  const root = document.querySelector(".brand").getAttribute("href").replace(/\/$/, "");
  const places = { q: "/", p: "/problems", r: "/redrives", l: "/log" };
  // When `g` was pressed; a page that was just opened has no `g` before.
  let begun = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || (keys && keys.open)) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const search = document.querySelector("[data-search]");
    if (event.timeStamp - begun < 1500 && places[event.key]) {
      location.assign(root + places[event.key]);
    } else if (event.key === "g") {
      begun = event.timeStamp;
      return;
    } else if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "r") refresh();
    else if (event.key === "?" && keys) keys.showModal();
    begun = -Infinity;
  });

  const button = document.getElementById("show-keys");
  if (button && keys) {
    button.hidden = false;
    button.addEventListener("click", () => keys.showModal());
  }
  const sort = document.getElementById("sort");
  if (sort) sort.addEventListener("change", () => sort.form.requestSubmit());
  const form = document.querySelector("form[data-once]");
  if (form) form.addEventListener("submit", () => setTimeout(() => form.querySelectorAll("button").forEach((each) => (each.disabled = true))));
  // The count, and the button, are for the values with which the page was made.
  const choose = document.getElementById("choose");
  if (form && choose) {
    const text = (of) => new URLSearchParams(new FormData(of)).toString();
    const made = choose.cloneNode(true);
    made.reset();
    const counted = text(made);
    const act = form.querySelector("button");
    const disabled = act.disabled;
    const compare = () => {
      const other = text(choose) !== counted;
      act.disabled = disabled || other;
      document.getElementById("again").textContent = other ? "Count again first: the fields are no longer those that were counted." : "";
    };
    for (const kind of ["input", "change"]) choose.addEventListener(kind, compare);
    form.addEventListener("submit", (event) => text(choose) !== counted && event.preventDefault());
    // A browser that comes back to a page brings back what was typed.
    window.addEventListener("pageshow", compare);
  }
  setInterval(refresh, EACH_MS);
  document.addEventListener("visibilitychange", refresh);
})();
