// Before anything is drawn, so that nothing flashes in the other colours.
(() => {
  const kept = localStorage.getItem("oncely-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
