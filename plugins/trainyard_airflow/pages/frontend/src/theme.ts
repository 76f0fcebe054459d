// Dark or light theme: that of Airflow's parent page, or of the system without a parent page.

function isDark(): boolean {
  try {
    const around = window.parent === window ? null : window.parent.document.documentElement;
    if (around?.classList.contains("dark")) return true;
    if (around?.classList.contains("light")) return false;
  } catch {
    // the parent page has another origin, so its theme cannot be read
  }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

export function followTheme(): void {
  const set = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  };
  set();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", set);
  try {
    if (window.parent !== window) {
      new MutationObserver(set).observe(window.parent.document.documentElement, {
        attributeFilter: ["class", "style"],
      });
    }
  } catch {
    // the parent page has another origin
  }
}

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
