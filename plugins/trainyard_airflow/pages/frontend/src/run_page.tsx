// Training page of one run.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import {
  airflowUrl,
  fetchFleet,
  fetchLog,
  fetchRun,
  reportUrl,
  type FleetRow,
  type Job,
  type RunKey,
  type RunPage as Page,
} from "./api";
import { Chart, type Line } from "./chart";
import { Curve, LOSSES, smoothed } from "./curve";
import { bytes, capacity, clock, duration, number, setting, usd, words } from "./format";
import { Goodput } from "./goodput";
import { Card, Fault, Pill, Tile } from "./parts";
import { usePolling } from "./polling";
import { StopButton } from "./stop_button";
import { Timeline } from "./timeline";

const COLORS: Record<string, string> = {
  loss: "train",
  validation_loss: "validation",
  learning_rate: "rate",
  tokens_per_second: "speed",
  samples_per_second: "speed",
  gradient_norm: "norm",
};
const RATES = ["tokens_per_second", "samples_per_second"];

export function RunPage({ runKey }: { runKey: RunKey }) {
  const curve = useRef(new Curve());
  const [page, setPage] = useState<Page | null>(null);
  const [version, setVersion] = useState(0);
  const polled = usePolling(async () => {
    const fresh = await fetchRun(runKey, curve.current.last, curve.current.stride);
    if (curve.current.take(fresh.curve)) setVersion((known) => known + 1);
    setPage(fresh);
    return !fresh.run.is_over;
  }, `${runKey.dag_id} ${runKey.run_id}`);
  if (!page) return polled.error ? <Fault text={polled.error} /> : <p class="hint">Reading the run…</p>;
  return (
    <>
      {polled.error ? <Fault text={`Not up to date: ${polled.error}`} /> : null}
      {page.fault ? <Fault text={`Incomplete: ${page.fault}`} /> : null}
      <Head page={page} />
      <Tiles page={page} curve={curve.current} />
      <Curves page={page} curve={curve.current} version={version} runKey={runKey} />
      <Card title="Timeline">
        <Timeline page={page} />
      </Card>
      <Goodput page={page} />
      <Jobs jobs={page.jobs} now={page.now} />
      <div class="halves">
        <Rules page={page} />
        <Checkpoints page={page} />
      </div>
      <Log runKey={runKey} isOver={page.run.is_over} />
      <Settings page={page} />
    </>
  );
}

function Head({ page }: { page: Page }) {
  const { run, progress } = page;
  const active = page.jobs.find((job) => job.name === page.active_job);
  const now = active ? `${active.task_id}: ${words(active.secondary_status ?? active.status)}` : "";
  const done = progress?.step && progress.max_steps ? progress.step / progress.max_steps : null;
  return (
    <div class="head">
      <div class="title">
        <Pill text={run.is_over ? run.verdict : now || run.state} tone={run.is_over ? undefined : "live"} />
        <span class="hint">
          {duration((run.end ?? page.now) - (run.start ?? page.now))}
          {progress?.left_s && active ? ` · ${duration(progress.left_s)} left in training` : ""}
        </span>
        <span class="actions">
          {run.has_report ? (
            <>
              <a class="button" href={reportUrl(run)} target="_blank">
                Report
              </a>
              {progress?.step ? (
                <a class="button" href={reportUrl(run, "profile.html")} target="_blank">
                  Profile
                </a>
              ) : null}
            </>
          ) : null}
          {run.is_over ? null : <StopButton runKey={run} />}
        </span>
      </div>
      {done === null ? null : (
        <div class="progress">
          <progress value={done} max={1} aria-label="progress of the training" />
          <span>
            step {progress!.step!.toLocaleString("en-US")} of {progress!.max_steps!.toLocaleString("en-US")} (
            {Math.floor(100 * done)} %)
          </span>
        </div>
      )}
      {run.is_paused && !run.is_over ? (
        <Fault text="The DAG is paused: no task of this run starts until somebody unpauses it." />
      ) : null}
      {run.note ? <p class="note">{run.note}</p> : null}
    </div>
  );
}

function Tiles({ page, curve }: { page: Page; curve: Curve }) {
  const { cost } = page;
  const training = page.jobs.filter((job) => job.task_id === "train");
  const newest = training.at(-1);
  const rate = RATES.find((name) => curve.newest(name));
  const interruptions = training.reduce((sum, job) => sum + job.interruptions, 0);
  const [limitName, limit] =
    cost.cap_usd !== null
      ? ["cap", cost.cap_usd]
      : cost.budget_usd !== null
        ? ["budget", cost.budget_usd]
        : ["at most", cost.ceiling_usd];
  const shown = curve.metrics.filter((name) => !RATES.includes(name) && !["learning_rate", "gradient_norm"].includes(name));
  return (
    <div class="tiles">
      {shown.slice(0, 4).map((name) => {
        const last = curve.newest(name)!;
        return <Tile key={name} name={words(name)} value={number(last.value)} note={`step ${last.step}`} />;
      })}
      {rate ? (
        <Tile name="speed" value={number(curve.newest(rate)!.value)} unit={rate.replace("_per_second", "/s")} />
      ) : null}
      <Tile
        name={page.run.is_over ? "cost" : "cost so far"}
        value={`${cost.is_complete ? "" : "at least "}${usd(cost.so_far_usd)}`}
        note={[
          limit === null ? "" : `${limitName} ${usd(limit)}`,
          cost.estimate_usd
            ? `estimate ${usd(cost.estimate_usd.expected)} (${usd(cost.estimate_usd.low)} to ${usd(cost.estimate_usd.high)})`
            : "",
          cost.saved_usd ? `spot saved ${usd(cost.saved_usd)}` : "",
        ]
          .filter(Boolean)
          .join(", ")}
        tone={limit !== null && cost.so_far_usd > 0.9 * limit ? "bad" : undefined}
      />
      {newest ? (
        <Tile
          name="cluster"
          value={newest.instances}
          note={`${capacity(newest)}${newest.rung_reason ? `: ${newest.rung_reason}` : ""}`}
        />
      ) : null}
      {newest ? (
        <Tile
          name="interruptions"
          value={String(interruptions)}
          note={`${training.length} ${training.length === 1 ? "job" : "jobs"}, ${page.starts.length} ${page.starts.length === 1 ? "start" : "starts"}`}
        />
      ) : null}
    </div>
  );
}

function Curves({ page, curve, version, runKey }: { page: Page; curve: Curve; version: number; runKey: RunKey }) {
  const [isLog, setLog] = useState(false);
  const [isTime, setTime] = useState(false);
  const [weight, setWeight] = useState(0);
  const [other, setOther] = useState<{ name: string; curve: Curve } | null>(null);
  const marks = useMemo(
    () =>
      page.starts.slice(1).map((start) => ({ at: isTime ? start.time : start.step, label: "resumed" })),
    [page.starts.length, isTime],
  );
  const losses = curve.metrics.filter((name) => LOSSES.includes(name));
  const groups = [losses, ...curve.metrics.filter((name) => !LOSSES.includes(name)).map((name) => [name])].filter(
    (group) => group.length > 0,
  );
  if (groups.length === 0) {
    return (
      <Card title="Curves">
        <p class="hint">
          {page.jobs.some((job) => job.task_id === "train" && job.started_at)
            ? "No metrics yet. A script writes them with trainyard_watch, or as lines “trainyard step=1 loss=2.3”."
            : page.run.is_over
              ? "No training ran."
              : "The training has not started yet."}
        </p>
      </Card>
    );
  }
  return (
    <Card
      title="Curves"
      aside={
        <span class="controls">
          <label>
            <input type="checkbox" checked={isLog} onInput={() => setLog(!isLog)} /> log scale
          </label>
          <label>
            <input type="checkbox" checked={isTime} onInput={() => setTime(!isTime)} /> by time
          </label>
          <label>
            smoothing{" "}
            <input
              type="range"
              min="0"
              max="0.98"
              step="0.02"
              value={weight}
              onInput={(event) => setWeight(Number(event.currentTarget.value))}
            />
          </label>
          <OtherRun runKey={runKey} onChoose={setOther} />
        </span>
      }
    >
      <div class="curves">
        {groups.map((group) => (
          <CurveChart
            key={group.join()}
            group={group}
            isWide={group === losses}
            curve={curve}
            other={other}
            version={version}
            weight={weight}
            isLog={isLog}
            isTime={isTime}
            marks={marks}
          />
        ))}
      </div>
      {other && isTime ? (
        <p class="hint" role="status">
          {other.name} is not drawn by time. Clear “by time” to compare the two runs by step.
        </p>
      ) : null}
      <p class="hint">Drag to zoom, double click to see all.</p>
    </Card>
  );
}

interface CurveChartProps {
  group: string[];
  isWide: boolean;
  curve: Curve;
  other: { name: string; curve: Curve } | null;
  version: number;
  weight: number;
  isLog: boolean;
  isTime: boolean;
  marks: { at: number; label: string }[];
}

function CurveChart({ group, isWide, curve, other, version, weight, isLog, isTime, marks }: CurveChartProps) {
  const lines = useMemo(() => {
    const of = (from: Curve, name: string) =>
      new Map(
        [...from.surviving(name)].map(([step, { value, time }]): [number, number] => [isTime ? time : step, value]),
      );
    return group.flatMap((name): Line[] => {
      const stroke = COLORS[name] ?? "train";
      const points = of(curve, name);
      const hasDots = name.startsWith("validation") || points.size === 1;
      const raw: Line = { label: words(name), points, stroke, hasDots };
      const own =
        weight && !hasDots
          ? [{ ...raw, label: `${raw.label} (raw)`, isFaint: true }, { ...raw, points: smoothed(points, weight) }]
          : [raw];
      if (!other || isTime) return own;
      const second = smoothed(of(other.curve, name), hasDots ? 0 : weight);
      return [...own, { label: `${words(name)} (${other.name})`, points: second, stroke: "other", hasDots }];
    });
  }, [version, weight, isTime, other, group.join()]);
  return (
    <figure class={isWide ? "wide" : ""}>
      <figcaption>{group.map(words).join(", ")}</figcaption>
      <Chart
        title={group.map(words).join(", ")}
        lines={lines}
        marks={marks}
        isLog={isLog}
        isTime={isTime}
        height={isWide ? 280 : 170}
      />
    </figure>
  );
}

function OtherRun({ runKey, onChoose }: { runKey: RunKey; onChoose: (other: { name: string; curve: Curve } | null) => void }) {
  const [runs, setRuns] = useState<FleetRow[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  const newest = useRef("");
  const load = () => {
    if (runs === null) fetchFleet().then(({ runs: all }) => setRuns(all), () => setRuns([]));
  };
  const choose = async (text: string) => {
    newest.current = text;
    setError(null);
    onChoose(null);
    const row = runs?.[Number(text)];
    if (text === "" || !row) return;
    try {
      const page = await fetchRun(row, -1, 1);
      if (newest.current !== text) return; // another run was chosen meanwhile
      const found = new Curve();
      found.take(page.curve);
      onChoose({ name: row.run_id, curve: found });
    } catch (refusal) {
      if (newest.current === text) setError(refusal instanceof Error ? refusal.message : String(refusal));
    }
  };
  return (
    <>
      <label>
        beside{" "}
        <select onFocus={load} onPointerDown={load} onInput={(event) => void choose(event.currentTarget.value)}>
          <option value="">no other run</option>
          {(runs ?? []).map((row, index) =>
            row.run_id === runKey.run_id && row.dag_id === runKey.dag_id ? null : (
              <option key={`${row.dag_id} ${row.run_id}`} value={index}>
                {row.run_id}
              </option>
            ),
          )}
        </select>
      </label>
      {error === null ? null : <Fault text={`The other run cannot be read: ${error}`} />}
    </>
  );
}

const LINKS: [string, string][] = [
  ["JobConsoleLink", "console"],
  ["JobLogsLink", "logs"],
  ["JobOutputLink", "output"],
];

function Jobs({ jobs, now }: { jobs: Job[]; now: number }) {
  if (jobs.length === 0) return null;
  return (
    <Card title="Jobs">
      <div class="scroll" tabIndex={0} role="region" aria-label="jobs">
        <table>
          <thead>
            <tr>
              <th>task</th>
              <th>attempt</th>
              <th>status</th>
              <th>instances</th>
              <th>tier</th>
              <th>started</th>
              <th class="number">time</th>
              <th class="number">cost</th>
              <th>job</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <JobRow key={job.name} job={job} now={now} />
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function JobRow({ job, now }: { job: Job; now: number }) {
  const until = job.ended_at ?? now;
  return (
    <>
      <tr>
        <td>{job.task_id}</td>
        <td>{job.attempt}</td>
        <td>
          <Pill
            text={job.status === "InProgress" ? (job.secondary_status ?? "InProgress") : job.status}
            tone={job.status === "InProgress" ? "live" : undefined}
          />
        </td>
        <td>
          {job.instances}
        </td>
        <td>
          {capacity(job)}
          {job.interruptions ? `, ${job.interruptions} interrupted` : ""}
        </td>
        <td>{clock(job.started_at ?? job.created_at)}</td>
        <td class="number">{job.created_at ? duration(until - job.created_at) : ""}</td>
        <td class="number">{usd(job.cost_usd)}</td>
        <td>
          <code>{job.name}</code>{" "}
          {LINKS.filter(([key]) => job.links[key]).map(([key, label]) => (
            <a key={key} href={job.links[key]} target="_blank" rel="noreferrer">
              {label}
            </a>
          ))}
        </td>
      </tr>
      {job.failure_reason ? (
        <tr class="reason">
          <td colSpan={9}>{job.failure_reason}</td>
        </tr>
      ) : null}
    </>
  );
}

function Rules({ page }: { page: Page }) {
  const { rules } = page;
  return (
    <Card title="Rules">
      {rules.stopped_by ? (
        <Fault
          text={`${rules.stopped_by.name} stopped the training at step ${rules.stopped_by.step}: ${rules.stopped_by.evidence}`}
        />
      ) : null}
      {rules.issues.length === 0 ? (
        <p class="hint">
          {rules.num_rules === 0
            ? page.run.is_over
              ? "No rule evaluated this training."
              : "No findings. The rules read the statistics while the job trains; they write here when they find something, and at the end."
            : rules.num_records === 0
              ? "Nothing to evaluate: the script writes no statistics."
              : `${rules.num_rules} rules, ${rules.num_records.toLocaleString("en-US")} records, no findings.`}
        </p>
      ) : (
        <ul class="findings">
          {rules.issues.slice(0, 50).map((issue) => (
            <li key={`${issue.name} ${issue.step} ${issue.text}`}>
              <Pill text={issue.severity} /> <b>{issue.name}</b> at step {issue.step}: {issue.text}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Checkpoints({ page }: { page: Page }) {
  const shown = page.checkpoints.slice(0, 8);
  return (
    <Card title="Checkpoints">
      {shown.length === 0 ? (
        <p class="hint">None yet.</p>
      ) : (
        <table>
          <thead>
            <tr>
              <th class="number">step</th>
              <th>taken</th>
              <th>on disk</th>
              <th class="number">size</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((each) => (
              <tr key={each.step}>
                <td class="number">{each.step}</td>
                <td>{clock(each.written_at)}</td>
                <td>{each.durable_at ? clock(each.durable_at) : "being written"}</td>
                <td class="number">{bytes(each.bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {page.checkpoints.length > shown.length ? (
        <p class="hint">and {page.checkpoints.length - shown.length} older ones</p>
      ) : null}
    </Card>
  );
}

function Log({ runKey, isOver }: { runKey: RunKey; isOver: boolean }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <section class="card">
      <details onToggle={(event) => setOpen((event.currentTarget as HTMLDetailsElement).open)}>
        <summary>
          <h2>Log</h2> <span class="hint">last lines of the training's first host</span>
        </summary>
        {isOpen ? <LogLines runKey={runKey} isOver={isOver} /> : null}
      </details>
    </section>
  );
}

function LogLines({ runKey, isOver }: { runKey: RunKey; isOver: boolean }) {
  const [lines, setLines] = useState<{ time: number; text: string }[]>([]);
  const box = useRef<HTMLPreElement>(null);
  const polled = usePolling(async () => {
    setLines((await fetchLog(runKey)).lines);
    return !isOver;
  }, `${runKey.run_id} ${isOver}`);
  useEffect(() => {
    const element = box.current;
    if (element) element.scrollTop = element.scrollHeight;
  }, [lines.length]);
  if (polled.error) return <Fault text={polled.error} />;
  return (
    <pre ref={box} class="log" tabIndex={0} aria-label="log lines">
      {lines.map((line) => `${clock(line.time)}  ${line.text}\n`)}
    </pre>
  );
}

function Settings({ page }: { page: Page }) {
  const [showsAll, setShowsAll] = useState(false);
  const changed = page.settings.filter((each) => each.differs);
  const shown = showsAll ? page.settings : changed;
  return (
    <Card
      title="Settings"
      aside={
        <span class="controls">
          <label>
            <input type="checkbox" checked={showsAll} onInput={() => setShowsAll(!showsAll)} /> defaults too
          </label>
          <a href={airflowUrl(page.run)} target="_top">
            run in Airflow
          </a>
        </span>
      }
    >
      {shown.length === 0 ? <p class="hint">All as the defaults are.</p> : null}
      <dl class="settings">
        {shown.map((each) => (
          <div key={each.name} class={each.differs ? "differs" : ""}>
            <dt>{each.name}</dt>
            <dd>{setting(each.value)}</dd>
          </div>
        ))}
      </dl>
    </Card>
  );
}
