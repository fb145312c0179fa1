// The look that the reader chose, before anything is drawn.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("gspo-edu-theme");
  } catch {} // storage may be forbidden: then the system's look it is
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
