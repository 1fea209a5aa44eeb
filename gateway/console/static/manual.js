// A link to a section of the page closes the contents that are over it.
document.addEventListener("click", (event) => {
  event.target.closest('a[href^="#"]')?.closest(":popover-open")?.hidePopover();
});
