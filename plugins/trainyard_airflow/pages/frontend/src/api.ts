// Responses of the API server below `api/` (trainyard/runs/live), and the requests for them.

export interface Task {
  task_id: string;
  map_index: number;
  state: string | null;
  try_number: number;
  start: number | null;
  end: number | null;
}

export interface Phase {
  name: string;
  css: string;
  start: number;
  end: number;
}

export interface Job {
  task_id: string;
  name: string;
  kind: string;
  status: string;
  secondary_status: string | null;
  instances: string;
  is_spot: boolean;
  training_plan?: string | null;
  attempt: number;
  interruptions: number;
  created_at: number | null;
  started_at: number | null;
  ended_at: number | null;
  cost_usd: number | null;
  saved_usd: number | null;
  failure_reason: string | null;
  rung_reason: string | null;
  final_metrics: Record<string, number | null>;
  links: Record<string, string>;
  phases: Phase[];
}

// index, step, attempt, time, values
export type Row = [number, number, number, number, Record<string, number | null>];

export interface RunPage {
  run: {
    dag_id: string;
    run_id: string;
    state: string;
    verdict: string;
    note: string | null;
    start: number | null;
    end: number | null;
    is_over: boolean;
    is_paused: boolean;
    has_report: boolean;
    model: string | null;
  };
  tasks: Task[];
  jobs: Job[];
  active_job: string | null;
  progress: {
    step: number | null;
    max_steps: number | null;
    left_s: number | null;
    attempt: number;
    is_done: boolean;
  } | null;
  cost: {
    so_far_usd: number;
    is_complete: boolean;
    ceiling_usd: number | null;
    estimate_usd: { low: number; expected: number; high: number } | null;
    budget_usd: number | null;
    cap_usd: number | null;
    saved_usd: number | null;
  };
  goodput: { wall_seconds: number; share: number; seconds: Record<string, number> } | null;
  rules: {
    num_rules: number;
    num_records: number;
    issues: { name: string; severity: string; step: number; text: string }[];
    stopped_by: { name: string; step: number; evidence: string } | null;
  };
  checkpoints: {
    step: number;
    written_at?: number;
    durable_at?: number;
    bytes?: number | null;
  }[];
  starts: {
    attempt: number;
    step: number;
    time: number;
    job: string;
    world_size: number | null;
  }[];
  settings: { name: string; value: unknown; differs: boolean }[];
  curve: { is_reset: boolean; stride: number; rows: Row[] };
  fault: string | null;
  now: number;
}

export interface FleetRow {
  dag_id: string;
  run_id: string;
  state: string;
  verdict: string;
  note: string | null;
  start: number | null;
  end: number | null;
  duration_s: number | null;
  is_over: boolean;
  model: string | null;
  instances: string | null;
  accelerators: number;
  stage: string | null;
  waits_for_person: boolean;
  cost_usd: number | null;
  ceiling_usd: number | null;
  figures: Record<string, number>;
  settings: Record<string, unknown>;
  has_report: boolean;
}

export interface FleetPage {
  runs: FleetRow[];
  now: number;
  running: number;
  accelerators_in_use: number;
  spend: { today: Spend; month: Spend; by_dag: Record<string, Spend>; by_team: Record<string, Spend> };
}

export interface Spend {
  usd: number;
  is_complete: boolean;
}

const MOST_MS = 60_000;

export class Refusal extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

async function asked<T>(url: string, options?: RequestInit): Promise<T> {
  const signal = AbortSignal.timeout(MOST_MS);
  const answer = await fetch(url, { credentials: "same-origin", signal, ...options });
  if (!answer.ok) throw new Refusal(answer.status, await reason(answer));
  return (await answer.json()) as T;
}

async function reason(answer: Response): Promise<string> {
  if (answer.status === 401) return "you are no longer logged in: reload Airflow's page";
  if (answer.status === 403) return "your user may not see this: it lacks the right to the DAG";
  try {
    const { detail } = (await answer.json()) as { detail?: unknown };
    return typeof detail === "string" ? detail : answer.statusText;
  } catch {
    return answer.statusText || `status ${answer.status}`;
  }
}

function query(values: Record<string, string | number>): string {
  const texts = Object.entries(values).map(([key, value]) => [key, String(value)]);
  return new URLSearchParams(texts).toString();
}

export interface RunKey {
  dag_id: string;
  run_id: string;
}

export function fetchRun(key: RunKey, after: number, stride: number): Promise<RunPage> {
  return asked<RunPage>(`api/run?${query({ ...key, after, stride })}`);
}

export function fetchLog(key: RunKey): Promise<{ lines: { time: number; text: string }[] }> {
  return asked(`api/log?${query({ ...key })}`);
}

export function fetchFleet(): Promise<FleetPage> {
  return asked<FleetPage>("api/fleet");
}

// Mark a run failed by Airflow's API, which stops its jobs.
export function stopRun({ dag_id, run_id }: RunKey): Promise<unknown> {
  const [dag, run] = [dag_id, run_id].map(encodeURIComponent);
  return asked(`../api/v2/dags/${dag}/dagRuns/${run}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ state: "failed" }),
  });
}

export function reportUrl({ dag_id, run_id }: RunKey, name = "report.html"): string {
  return `reports/${encodeURIComponent(dag_id)}/${encodeURIComponent(run_id)}/${name}`;
}

// Return the address of Airflow's own page of a run, for the parent window.
export function airflowUrl({ dag_id, run_id }: RunKey, page = ""): string {
  return `../dags/${encodeURIComponent(dag_id)}/runs/${encodeURIComponent(run_id)}${page}`;
}

// Return the address of the training tab on Airflow's page of a run.
export function runUrl(key: RunKey): string {
  return airflowUrl(key, "/plugin/trainyard_training");
}
