// The color scheme: the system's, or the one that the switch chose. Loaded in the head, before
// anything is painted; the only script that is not a module.
"use strict";

(() => {
  const SCHEMES = ["auto", "light", "dark"];
  const KEY = "bytemill-theme";
  const root = document.documentElement;

  function stored() {
    try {
      const found = localStorage.getItem(KEY);
      return SCHEMES.includes(found) ? found : "auto";
    } catch {
      return "auto"; // storage is blocked
    }
  }

  function store(scheme) {
    try {
      localStorage.setItem(KEY, scheme);
    } catch {
      // The choice applies to this page only.
    }
  }

  root.dataset.theme = stored();

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      const text = `Colors: ${root.dataset.theme}`;
      button.setAttribute("aria-label", text);
      button.title = text;
    };
    button.addEventListener("click", () => {
      const next = (SCHEMES.indexOf(root.dataset.theme) + 1) % SCHEMES.length;
      root.dataset.theme = SCHEMES[next];
      store(SCHEMES[next]);
      name();
    });
    name();
  });
})();
