// Dark or light, as Airflow's page around this one is; without one, as the system is.

function isDark(): boolean {
  try {
    const around = window.parent === window ? null : window.parent.document.documentElement;
    if (around?.classList.contains("dark")) return true;
    if (around?.classList.contains("light")) return false;
  } catch {
    // another origin's page: nothing can be read of it
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
    // as above
  }
}

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
