// The gallery's filter: hides cards that do not match, counts the others, and stores the choice in the URL.
"use strict";

(function () {
  const form = document.getElementById("lk-filter");
  if (!form) return;
  const cards = Array.from(document.querySelectorAll(".lk-card"));
  const count = document.getElementById("lk-count");
  const fields = ["q", "kind", "component", "paper", "status"];
  const texts = new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));

  function selection() {
    return Object.fromEntries(fields.map((name) => [name, form.elements[name].value.trim()]));
  }

  function matches(card, want) {
    const components = card.dataset.components.split(" ");
    const words = want.q.toLowerCase().split(/\s+/).filter(Boolean);
    const searched = texts.get(card) + " " + components.join(" ");
    return (
      words.every((word) => searched.includes(word)) &&
      (!want.kind || components.some((name) => name.startsWith(want.kind + "/"))) &&
      (!want.component || components.includes(want.component)) &&
      (!want.paper || card.dataset.paper === want.paper) &&
      (!want.status || card.dataset.status === want.status)
    );
  }

  // with a kind selected, offer only its components
  function offer(kind) {
    const select = form.elements.component;
    for (const group of select.querySelectorAll("optgroup")) {
      group.hidden = group.disabled = Boolean(kind) && group.label !== kind;
    }
    if (kind && select.value && !select.value.startsWith(kind + "/")) select.value = "";
  }

  function remember(want) {
    const query = new URLSearchParams(Object.entries(want).filter(([, value]) => value)).toString();
    history.replaceState(null, "", query ? "?" + query : location.pathname);
  }

  function apply() {
    offer(form.elements.kind.value);
    const want = selection();
    let shown = 0;
    for (const card of cards) {
      card.hidden = !matches(card, want);
      shown += !card.hidden;
    }
    count.textContent = shown + " of " + cards.length + " recipes" + (shown ? "" : ": no recipe matches; show all");
    return want;
  }

  const query = new URLSearchParams(location.search);
  for (const name of fields) {
    if (query.has(name)) form.elements[name].value = query.get(name);
  }
  form.hidden = false;
  apply();
  form.addEventListener("input", () => remember(apply()));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => remember(apply())));
})();
