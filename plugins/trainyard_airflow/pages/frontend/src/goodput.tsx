// Chart of a run's wall time by cause (trainyard/runs/goodput).

import type { RunPage } from "./api";
import { duration } from "./format";
import { Card } from "./parts";

const COLORS: Record<string, string> = {
  stepping: "working",
  "stalled on data": "interrupted",
  checkpointing: "uploading",
  "steps redone later": "stopping",
  "waiting for capacity": "waiting",
  starting: "downloading",
  uploading: "warn",
  "preparing data": "good",
  searching: "norm",
  "smoke test": "validation",
  evaluating: "speed",
  "waiting for a person": "rate",
};

export function Goodput({ page }: { page: RunPage }) {
  const { goodput } = page;
  if (!goodput?.wall_seconds) return null;
  const causes = Object.entries(goodput.seconds).map(([name, seconds]) => ({
    name,
    seconds,
    percent: (100 * seconds) / goodput.wall_seconds,
    style: { background: `var(--${COLORS[name] ?? "other"})` },
  }));
  const sentence = `${Math.round(100 * goodput.share)} % of ${duration(goodput.wall_seconds)} went into steps that survived`;
  return (
    <Card title="Goodput" aside={<span class="hint">{sentence}</span>}>
      <div class="shares" role="img" aria-label={sentence}>
        {causes.map(({ name, seconds, percent, style }) => (
          <i key={name} style={{ ...style, width: `${percent}%` }} title={`${name}: ${duration(seconds)}`} />
        ))}
      </div>
      <p class="legend">
        {causes.map(({ name, seconds, percent, style }) => (
          <span class="key" key={name}>
            <i style={style} />
            {name} {duration(seconds)} ({percent.toFixed(1)} %)
          </span>
        ))}
      </p>
    </Card>
  );
}
