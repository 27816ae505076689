// The site's theme, which all its pages share; it runs before the page is painted.

const THEMES = ["auto", "light", "dark"];
const kept = () => {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
};
document.body.dataset.theme = kept() || "auto";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** `auto` follows the system, also while the page is open. */
function follow() {
  const theme = kept() || "auto";
  document.body.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
}

follow();
dark.addEventListener("change", follow);
addEventListener("DOMContentLoaded", () => {
  document.querySelector(".theme")?.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(kept() || "auto") + 1) % THEMES.length];
    try {
      localStorage.setItem("theme", next);
    } catch {
      // a private window keeps nothing
    }
    follow();
    const said = document.querySelector(".theme-said");
    if (said) said.textContent = `theme: ${next}`;
  });
});
