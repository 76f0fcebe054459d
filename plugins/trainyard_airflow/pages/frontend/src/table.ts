// Sorting, filtering and comparison of the fleet's rows. Pure.

import type { FleetRow } from "./api";

export type Column = "run_id" | "dag_id" | "verdict" | "model" | "start" | "duration_s" | "cost_usd";

// Return the rows in order; rows without a value are last in both directions.
export function sorted(rows: FleetRow[], column: Column, isDown: boolean): FleetRow[] {
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [a[column], b[column]];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  });
}

// Return the rows that contain every word of the query; `name:text` searches one column.
export function filtered(rows: FleetRow[], query: string): FleetRow[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => words.every((word) => matches(row, word)));
}

function matches(row: FleetRow, word: string): boolean {
  const [name, text] = word.split(/:(.*)/s, 2);
  if (text !== undefined && name && name in row) {
    return String(row[name as keyof FleetRow] ?? "").toLowerCase().includes(text);
  }
  const texts = [row.dag_id, row.run_id, row.state, row.verdict, row.model, row.instances, row.note, row.stage];
  return texts.some((each) => each?.toLowerCase().includes(word));
}

export interface Compared {
  name: string;
  values: unknown[];
}

// Return the settings that differ between the runs, and all figures that at least one run has.
export function compared(rows: FleetRow[]): { settings: Compared[]; figures: Compared[] } {
  const names = (pick: (row: FleetRow) => object) => [...new Set(rows.flatMap((row) => Object.keys(pick(row))))];
  const settings = names((row) => row.settings)
    .map((name) => ({ name, values: rows.map((row) => row.settings[name]) }))
    .filter(({ values }) => new Set(values.map((value) => JSON.stringify(value ?? null))).size > 1);
  const figures = names((row) => row.figures).map((name) => ({ name, values: rows.map((row) => row.figures[name]) }));
  return { settings, figures };
}
