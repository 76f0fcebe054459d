// Timeline of a run's tasks, each with the phases of its jobs.

import type { Job, RunPage, Task } from "./api";
import { clock, duration, words } from "./format";

const PHASES: [string, string][] = [
  ["waiting", "starting"],
  ["downloading", "downloading"],
  ["working", "training or processing"],
  ["uploading", "uploading"],
  ["interrupted", "interrupted"],
  ["stopping", "stopping"],
];

export function Timeline({ page }: { page: RunPage }) {
  const tasks = page.tasks
    .filter((task) => task.start !== null && !["skipped", "upstream_failed"].includes(task.state ?? ""))
    .sort((a, b) => a.start! - b.start!);
  if (tasks.length === 0) return <p class="hint">No task has started yet.</p>;
  const begin = Math.min(page.run.start ?? Infinity, ...tasks.map((task) => task.start!));
  const end = Math.max(
    begin + 1,
    page.run.end ?? page.now,
    ...page.jobs.flatMap((job) => job.phases.map((phase) => phase.end)),
  );
  const place = (from: number, to: number) => ({
    left: `${(100 * (from - begin)) / (end - begin)}%`,
    width: `max(2px, ${(100 * (to - from)) / (end - begin)}%)`,
  });
  const seen = new Set(page.jobs.flatMap((job) => job.phases.map((phase) => phase.css)));
  return (
    <div class="timeline">
      {tasks.map((task) => (
        <TaskRow key={`${task.task_id}${task.map_index}`} task={task} page={page} place={place} />
      ))}
      <div class="times">
        <span>{clock(begin)}</span>
        <span>{duration(end - begin)}</span>
        <span>{page.run.is_over ? clock(end) : "now"}</span>
      </div>
      <p class="legend">
        {PHASES.filter(([css]) => seen.has(css)).map(([css, label]) => (
          <span class="key" key={css}>
            <i class={`phase-${css}`} />
            {label}
          </span>
        ))}
      </p>
    </div>
  );
}

type Place = (from: number, to: number) => { left: string; width: string };

function TaskRow({ task, page, place }: { task: Task; page: RunPage; place: Place }) {
  const until = task.end ?? page.now;
  const tries = task.try_number > 1 ? `, try ${task.try_number}` : "";
  const took = duration(until - task.start!);
  const name = task.map_index < 0 ? task.task_id : `${task.task_id} [${task.map_index}]`;
  const jobs = page.jobs.filter((job) => job.task_id === task.task_id && task.map_index < 0);
  return (
    <div class="row">
      <span class="name">{name}</span>
      <div class="bars">
        <div class="lane">
          <i
            class={`bar state-${task.state}`}
            style={place(task.start!, until)}
            title={`${name}: ${words(task.state ?? "none")}, ${took}${tries}`}
          />
        </div>
        {jobs.map((job) => (
          <JobLane key={job.name} job={job} place={place} />
        ))}
      </div>
      <span class="took">
        {took}
        {tries}
      </span>
    </div>
  );
}

function JobLane({ job, place }: { job: Job; place: Place }) {
  return (
    <div class="lane job">
      {job.phases.map((phase) => (
        <i
          key={phase.start}
          class={`bar phase-${phase.css}`}
          style={place(phase.start, phase.end)}
          title={`${job.name}: ${phase.name}, ${duration(phase.end - phase.start)}`}
        />
      ))}
    </div>
  );
}
