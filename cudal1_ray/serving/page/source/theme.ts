// Loaded before the page is drawn, so that a chosen theme does not flash; the rest of it is in main.ts.
try {
  const theme = localStorage.getItem("cudal1.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // storage is forbidden here: the system's preference it is
}
