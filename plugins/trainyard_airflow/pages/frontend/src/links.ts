// Links to other pages. Airflow shows this page in a frame that must not open windows, so the parent page opens them.

export function openLinksOutside(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || window.parent === window || event.defaultPrevented) return;
    if (!["http:", "https:"].includes(new URL(link.href).protocol)) return;
    const around = window.parent.document;
    const copy = around.createElement("a");
    copy.href = link.href;
    copy.rel = "noreferrer";
    copy.target = link.target === "_top" ? "" : link.target;
    event.preventDefault();
    copy.click();
  });
}
