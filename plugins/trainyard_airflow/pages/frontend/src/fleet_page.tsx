// Fleet page: all runs of the deployment with state and cost, and a comparison of up to ten runs.

import { useMemo, useState } from "preact/hooks";

import { airflowUrl, fetchFleet, reportUrl, runUrl, type FleetPage as Page, type FleetRow, type Spend } from "./api";
import { duration, moment, number, setting, usd, words } from "./format";
import { Card, Fault, Pill, Tile } from "./parts";
import { usePolling } from "./polling";
import { StopButton } from "./stop_button";
import { compared, filtered, sorted, type Column } from "./table";

const MOST_COMPARED = 10;
const EVERY_MS = 10_000;
const COLUMNS: [Column, string, boolean][] = [
  ["run_id", "run", false],
  ["dag_id", "DAG", false],
  ["verdict", "state", false],
  ["model", "model or script", false],
  ["start", "started", false],
  ["duration_s", "time", true],
  ["cost_usd", "cost", true],
];

const keyOf = (row: FleetRow) => `${row.dag_id} ${row.run_id}`;

export function FleetPage() {
  const [page, setPage] = useState<Page | null>(null);
  const [query, setQuery] = useState("");
  const [order, setOrder] = useState<{ column: Column; isDown: boolean }>({ column: "start", isDown: true });
  const [chosen, setChosen] = useState<string[]>([]);
  const polled = usePolling(async () => {
    const fresh = await fetchFleet();
    setPage(fresh);
    return fresh.running > 0;
  }, "fleet", EVERY_MS);
  const rows = useMemo(
    () => sorted(filtered(page?.runs ?? [], query), order.column, order.isDown),
    [page, query, order],
  );
  if (!page) return polled.error ? <Fault text={polled.error} /> : <p class="hint">Reading the runs…</p>;
  const toggle = (key: string) =>
    setChosen((known) =>
      known.includes(key) ? known.filter((each) => each !== key) : [...known, key].slice(-MOST_COMPARED),
    );
  const beside = page.runs.filter((row) => chosen.includes(keyOf(row)));
  return (
    <>
      {polled.error ? <Fault text={`Not up to date: ${polled.error}`} /> : null}
      <h1>Training fleet</h1>
      <Totals page={page} />
      {beside.length > 1 ? <Comparison rows={beside} /> : null}
      <Card
        title="Runs"
        aside={
          <span class="controls">
            <label>
              filter{" "}
              <input
                type="search"
                value={query}
                placeholder="verdict:failed ml.g5"
                onInput={(event) => setQuery(event.currentTarget.value)}
              />
            </label>
            <span class="hint">
              {rows.length} of {page.runs.length}
              {beside.length === 1 ? "; choose another one to compare" : ""}
            </span>
          </span>
        }
      >
        <div class="scroll" tabIndex={0} role="region" aria-label="runs">
          <table class="fleet">
            <thead>
              <tr>
                <th>
                  <span class="unseen">compare</span>
                </th>
                {COLUMNS.map(([column, label, isNumber]) => (
                  <th
                    key={column}
                    class={isNumber ? "number" : ""}
                    aria-sort={order.column === column ? (order.isDown ? "descending" : "ascending") : "none"}
                  >
                    <button
                      class="sort"
                      onClick={() =>
                        setOrder({ column, isDown: order.column === column ? !order.isDown : isNumber || column === "start" })
                      }
                    >
                      {label}
                      {order.column === column ? (order.isDown ? " ↓" : " ↑") : ""}
                    </button>
                  </th>
                ))}
                <th>result</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <Run key={keyOf(row)} row={row} isChosen={chosen.includes(keyOf(row))} onChoose={toggle} />
              ))}
            </tbody>
          </table>
        </div>
        {page.runs.length === 0 ? <p class="hint">No run yet of a DAG with the tag “trainyard”.</p> : null}
      </Card>
    </>
  );
}

function Totals({ page }: { page: Page }) {
  const waiting = page.runs.filter((row) => row.waits_for_person).length;
  const { today, month, by_dag, by_team } = page.spend;
  const teams = Object.entries(by_team).sort((a, b) => b[1].usd - a[1].usd);
  const most = Object.entries(by_dag).sort((a, b) => b[1].usd - a[1].usd)[0];
  const amount = ({ usd: value, is_complete }: Spend) => `${is_complete ? "" : "at least "}${usd(value)}`;
  return (
    <div class="tiles">
      <Tile name="running" value={String(page.running)} note={waiting ? `${waiting} wait for a person` : undefined} />
      <Tile name="accelerators in use" value={String(page.accelerators_in_use)} />
      <Tile name="runs of today" value={amount(today)} note="that ended today (UTC), or run now" />
      <Tile
        name="runs of this month"
        value={amount(month)}
        note={most?.[1].usd ? `most: ${most[0]}, ${amount(most[1])}` : undefined}
      />
      {teams.length ? (
        <Tile
          name="teams of this month"
          value={String(teams.length)}
          note={teams.map(([team, spend]) => `${team} ${amount(spend)}`).join(", ")}
        />
      ) : null}
    </div>
  );
}

function Run({ row, isChosen, onChoose }: { row: FleetRow; isChosen: boolean; onChoose: (key: string) => void }) {
  const figures = Object.entries(row.figures).slice(0, 2);
  const state = row.is_over ? row.verdict : row.stage ?? row.state;
  return (
    <tr class={isChosen ? "chosen" : ""}>
      <td>
        <input
          type="checkbox"
          aria-label={`compare ${row.run_id}`}
          checked={isChosen}
          onInput={() => onChoose(keyOf(row))}
        />
      </td>
      <td>
        <a href={runUrl(row)} target="_top">
          {row.run_id}
        </a>
      </td>
      <td>{row.dag_id}</td>
      <td>
        <Pill text={state} tone={row.is_over ? undefined : "live"} />
        {row.waits_for_person ? (
          <a href={airflowUrl(row, "/required_actions")} target="_top">
            needs an answer
          </a>
        ) : null}
      </td>
      <td>
        {row.model}
        <br />
        <small>{row.instances}</small>
      </td>
      <td>{moment(row.start)}</td>
      <td class="number">{duration(row.duration_s)}</td>
      <td class="number">
        {row.cost_usd === null ? null : usd(row.cost_usd)}
        {row.is_over ? null : <small> of at most {usd(row.ceiling_usd)}</small>}
      </td>
      <td>
        {figures.map(([name, value]) => `${words(name)} ${number(value)}`).join(", ")}
        {row.has_report ? (
          <>
            {" "}
            <a href={reportUrl(row)} target="_blank">
              report
            </a>
          </>
        ) : null}
        {row.is_over ? null : <StopButton runKey={row} />}
        {row.is_over && row.verdict !== "succeeded" && row.note ? <p class="why">{row.note}</p> : null}
      </td>
    </tr>
  );
}

function Comparison({ rows }: { rows: FleetRow[] }) {
  const { settings, figures } = compared(rows);
  const money = [
    { name: "cost", values: rows.map((row) => (row.cost_usd === null ? "" : usd(row.cost_usd))) },
    { name: "time", values: rows.map((row) => duration(row.duration_s)) },
  ];
  const shown = (value: unknown) => (typeof value === "number" ? number(value) : setting(value));
  return (
    <Card title={`${rows.length} runs compared`}>
      <div class="scroll" tabIndex={0} role="region" aria-label="comparison">
        <table>
          <thead>
            <tr>
              <th />
              {rows.map((row) => (
                <th key={keyOf(row)}>
                  <a href={runUrl(row)} target="_top">
          {row.run_id}
        </a>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {[...figures, ...money, ...settings].map(({ name, values }) => (
              <tr key={name}>
                <th scope="row">{words(name)}</th>
                {values.map((value, index) => (
                  <td key={keyOf(rows[index]!)}>{shown(value)}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {settings.length === 0 ? <p class="hint">All settings are the same.</p> : null}
    </Card>
  );
}
