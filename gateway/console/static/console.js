// What pages gain by a script: times in the reader's zone, copy buttons, files, no form sent twice. They work without it.
(() => {
  "use strict";

  const form = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short" };
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

  // A text of the page as a file.
  const save = (button) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([document.getElementById(button.dataset.save).textContent]));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  };

  // A text is as long as the form sends it: the server does not read a longer body.
  const checkLength = (area) => {
    const sent = new URLSearchParams({ "": area.value.replace(/\r?\n/g, "\r\n") }).toString().length;
    area.setCustomValidity(sent > Number(area.dataset.most) ? "The text is too long for a form." : "");
  };

  // The text of a chosen file goes into a field. One that is not UTF-8 would come out wrong, so it is refused.
  const fill = async (input) => {
    const [file] = input.files;
    let problem = "";
    if (file?.size > Number(input.dataset.most)) problem = "The file is too large for a form.";
    else if (file) {
      try {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        const area = document.getElementById(input.dataset.fills);
        area.value = text;
        checkLength(area);
        area.reportValidity();
      } catch {
        problem = "The file is not UTF-8.";
      }
    }
    input.setCustomValidity(problem);
    input.reportValidity();
  };

  // Groups of the navigation stay as the reader has left them, in all tabs. The group of the page is open.
  const KEPT = "closed-groups";
  const read = () => {
    try {
      return JSON.parse(localStorage.getItem(KEPT)) ?? {};
    } catch {
      return {};
    }
  };
  const keepGroups = () => {
    for (const group of document.querySelectorAll(".side details")) {
      const [head, kept] = [group.querySelector("summary"), read()];
      const name = head.textContent.split(" ")[0];
      if (name in kept && !group.classList.contains("here")) group.open = kept[name];
      head.addEventListener("click", () => localStorage.setItem(KEPT, JSON.stringify({ ...read(), [name]: !group.open })));
    }
    document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest" });
  };

  // A browser may leave a link that has a pixel in sight where it is when it gets the focus.
  const showFocus = (event) => event.target.scrollIntoView({ block: "nearest", inline: "nearest" });

  const ready = () => {
    keepGroups();
    document.querySelector(".side")?.addEventListener("focusin", showFocus);
    localise(document);
    for (const only of document.querySelectorAll("[data-scripted][hidden]")) only.hidden = false;
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
    const saving = event.target.closest("[data-save]");
    if (saving) save(saving);
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
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-fills]")) fill(event.target);
    if (event.target.matches("textarea[data-most]")) checkLength(event.target);
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
