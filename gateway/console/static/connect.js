// The page Connect: puts the typed key into the texts. The key stays in the browser.
(() => {
  "use strict";

  const field = document.getElementById("key");
  if (!field) return;
  const places = [...document.querySelectorAll(".keyed")].map((element) => [element, element.textContent]);
  const fill = () => {
    const key = field.value.trim() || field.placeholder;
    for (const [element, text] of places) element.textContent = text.replaceAll(field.placeholder, () => key);
  };
  field.addEventListener("input", fill);
  fill();
})();
