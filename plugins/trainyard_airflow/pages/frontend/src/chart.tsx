// Line chart with the values under the pointer; dragging zooms in, and a double click resets the zoom.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { aligned } from "./curve";
import { clock, number } from "./format";
import { color } from "./theme";

export interface Line {
  label: string;
  points: Map<number, number>;
  stroke: string; // name of a color in the style sheet
  isFaint?: boolean;
  hasDots?: boolean;
}

interface Props {
  title: string;
  lines: Line[];
  marks: { at: number; label: string }[];
  isLog: boolean;
  isTime: boolean;
  height: number;
}

export function Chart(props: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const marks = useRef(props.marks);
  marks.current = props.marks;
  const shape = JSON.stringify([
    props.lines.map((line) => [line.label, line.stroke, line.isFaint, line.hasDots]),
    props.isLog,
    props.isTime,
    props.height,
  ]);
  useEffect(() => {
    const element = holder.current!;
    const made = new uPlot(options(props, element.clientWidth, marks), values(props), element);
    plot.current = made;
    const sizes = new ResizeObserver(() => {
      if (element.clientWidth) made.setSize({ width: element.clientWidth, height: props.height });
    });
    sizes.observe(element);
    const theme = new MutationObserver(() => made.redraw());
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      sizes.disconnect();
      theme.disconnect();
      made.destroy();
    };
  }, [shape]);
  useEffect(() => {
    const drawn = plot.current;
    if (!drawn) return;
    const all = drawn.data[0];
    const { min, max } = drawn.scales.x!;
    const isZoomed = all.length > 1 && (min !== all[0] || max !== all.at(-1));
    drawn.setData(values(props), !isZoomed);
  }, [props.lines, props.marks]);
  return <div class="chart" ref={holder} role="img" aria-label={summary(props)} />;
}

function values({ lines, isLog }: Props): uPlot.AlignedData {
  const { x, ys } = aligned(lines.map((line) => line.points));
  const shown = isLog ? ys.map((y) => y.map((each) => (each !== null && each > 0 ? each : null))) : ys;
  return [x, ...shown] as uPlot.AlignedData;
}

function summary({ title, lines }: Props): string {
  const ends = lines.flatMap((line) => {
    const last = [...line.points.values()].at(-1);
    return last === undefined ? [] : [`${line.label} ${number(last)}`];
  });
  return `${title}: ${ends.join(", ") || "no values yet"}`;
}

function options(
  { lines, isLog, isTime, height }: Props,
  width: number,
  marks: { current: Props["marks"] },
): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => color("muted"),
    grid: { stroke: () => color("line"), width: 1 },
    ticks: { stroke: () => color("line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  return {
    width: Math.max(200, width),
    height,
    cursor: { drag: { x: true, y: false }, points: { size: 6 } },
    scales: { x: { time: isTime }, y: { distr: isLog ? 3 : 1 } },
    axes: [
      axis,
      {
        ...axis,
        size: 62,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))),
      },
    ],
    series: [
      { label: isTime ? "time" : "step", value: (_, at) => (at === null ? "–" : isTime ? clock(at) : String(at)) },
      ...lines.map(
        (line): uPlot.Series => ({
          label: line.label,
          stroke: () => color(line.stroke),
          width: line.isFaint ? 1 : 1.75,
          alpha: line.isFaint ? 0.35 : 1,
          spanGaps: true,
          points: { show: line.hasDots ?? false, size: 5 },
          value: (_, value) => (value === null ? "–" : number(value)),
        }),
      ),
    ],
    hooks: { draw: [(made) => drawMarks(made, marks.current)] },
  };
}

function drawMarks(made: uPlot, marks: Props["marks"]): void {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.strokeStyle = color("interrupted");
  ctx.fillStyle = color("muted");
  ctx.setLineDash([4, 4]);
  ctx.textAlign = "left";
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const { at, label } of marks) {
    const x = made.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, x + 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
}
