// What pages gain by a script: times in the reader's zone, copy buttons, no form sent twice. They work without it.
(() => {
  "use strict";

  const form = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
  const thisYear = new Intl.DateTimeFormat(undefined, form);
  const anyYear = new Intl.DateTimeFormat(undefined, { ...form, year: "numeric" });
  const localText = (moment) =>
    (moment.getFullYear() === new Date().getFullYear() ? thisYear : anyYear).format(moment);

  // Times: the text becomes local, the title stays UTC.
  const localise = (root) => {
    for (const element of root.querySelectorAll("time[data-local]")) {
      const moment = new Date(element.dateTime);
      if (!Number.isNaN(moment.getTime())) element.textContent = localText(moment);
      element.removeAttribute("data-local");
    }
  };

  const copy = async (button) => {
    const source = document.getElementById(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text.trim());
    } catch {
      // Without HTTPS there is no clipboard object; the text is selected instead.
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  };

  // In a narrow window the navigation is a row that scrolls: the current page is to be in sight.
  const showCurrentPage = () => {
    const navigation = document.querySelector(".side");
    const current = navigation?.querySelector("[aria-current]");
    if (current) navigation.scrollLeft = current.offsetLeft - (navigation.clientWidth - current.offsetWidth) / 2;
  };

  const ready = () => {
    showCurrentPage();
    localise(document);
    new MutationObserver((changes) => {
      for (const change of changes)
        for (const node of change.addedNodes) if (node.nodeType === Node.ELEMENT_NODE) localise(node.parentNode);
    }).observe(document.body, { childList: true, subtree: true });
    // A page that answers a form and must not come again by a reload names the address that it stands for.
    const address = document.querySelector("[data-address]");
    if (address) history.replaceState(null, "", address.dataset.address);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    for (const open of document.querySelectorAll("details.drop[open]"))
      if (!open.contains(event.target)) open.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const open of document.querySelectorAll("details.drop[open]")) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  });
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    if ("download" in event.target.dataset) return; // its answer is a file: the page stays
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "1";
    for (const button of event.target.querySelectorAll("button")) button.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
    for (const button of document.querySelectorAll("button[aria-busy]")) button.removeAttribute("aria-busy");
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
  else ready();
})();
