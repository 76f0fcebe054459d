// Shows the values under the pointer. The page is complete without it.
const tip = document.getElementById("tip");
for (const chart of document.querySelectorAll("svg[data-series]")) {
  const { x: xLabel, curves } = JSON.parse(chart.dataset.series);
  const line = chart.querySelector(".crosshair");
  const nearest = (points, at) =>
    points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const found = curves.map((curve) => [curve.label, nearest(curve.points, at)]);
    const leading = nearest(found.map(([, point]) => point), at);
    line.setAttribute("x1", leading[0]);
    line.setAttribute("x2", leading[0]);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: `${xLabel} ${leading[2]}` }));
    for (const [label, point] of found) {
      const row = document.createElement("div");
      const step = point[2] === leading[2] ? "" : ` (at ${point[2]})`;
      row.textContent = `${label}: ${point[3].toPrecision(5)}${step}`;
      tip.append(row);
    }
    tip.hidden = false;
    const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - tip.offsetWidth - 12 : event.clientX + 16;
    tip.style.left = `${left}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  chart.addEventListener("pointerleave", () => {
    tip.hidden = true;
    line.setAttribute("x1", -9);
    line.setAttribute("x2", -9);
  });
}
