// Make scrollable boxes reachable with the keyboard, and label them and the search field.
"use strict";

(function () {
  function reach() {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> img)")) {
      if (box.scrollWidth <= box.clientWidth) {
        for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
        continue;
      }
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", (box.tagName === "P" ? "Plot" : "Table") + ", scrolls sideways");
    }
    for (const block of document.querySelectorAll("pre > code")) {
      if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
    }
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  window.addEventListener("load", reach);
  window.addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
})();
