// Curve of a training: its rows, and the values that a chart draws. Pure.

import type { Row, RunPage } from "./api";

export const LOSSES = ["loss", "validation_loss"];
const ORDER = ["loss", "validation_loss", "learning_rate", "tokens_per_second", "samples_per_second", "gradient_norm"];

export class Curve {
  rows: Row[] = [];
  stride = 1;

  get last(): number {
    return this.rows.at(-1)?.[0] ?? -1;
  }

  take({ is_reset, stride, rows }: RunPage["curve"]): boolean {
    if (is_reset) this.rows = [];
    this.stride = stride;
    const last = this.last;
    const fresh = rows.filter((row) => row[0] > last);
    this.rows.push(...fresh);
    return is_reset || fresh.length > 0;
  }

  // Names of the metrics: known ones by importance, then the others by name.
  get metrics(): string[] {
    const names = new Set(this.rows.flatMap((row) => Object.keys(row[4])));
    const known = ORDER.filter((name) => names.has(name));
    return [...known, ...[...names].filter((name) => !ORDER.includes(name)).sort()];
  }

  newest(metric: string): { value: number; step: number } | null {
    for (let index = this.rows.length - 1; index >= 0; index -= 1) {
      const row = this.rows[index]!;
      const value = row[4][metric];
      if (typeof value === "number") return { value, step: row[1] };
    }
    return null;
  }

  // Points of a metric by step. Points of a later start replace those of the steps that it repeats.
  surviving(metric: string): Map<number, { value: number; time: number }> {
    const points = new Map<number, { value: number; time: number }>();
    let attempt = 0;
    for (const row of this.rows) {
      const value = row[4][metric];
      if (row[2] > attempt) {
        attempt = row[2];
        for (const step of [...points.keys()]) if (step >= row[1]) points.delete(step);
      }
      if (typeof value === "number") points.set(row[1], { value, time: row[3] });
    }
    return points;
  }
}

export interface Aligned {
  x: number[];
  ys: (number | null)[][];
}

// Return several curves on one axis: each x once and in order, and null if a curve has no value at an x.
export function aligned(curves: Map<number, number>[]): Aligned {
  const x = [...new Set(curves.flatMap((curve) => [...curve.keys()]))].sort((a, b) => a - b);
  return { x, ys: curves.map((curve) => x.map((at) => curve.get(at) ?? null)) };
}

// Return the exponential moving average with bias correction; a weight of 0 returns the points unchanged.
export function smoothed(points: Map<number, number>, weight: number): Map<number, number> {
  if (weight === 0) return points;
  let mean = 0;
  let norm = 0;
  const result = new Map<number, number>();
  for (const at of [...points.keys()].sort((a, b) => a - b)) {
    mean = weight * mean + (1 - weight) * points.get(at)!;
    norm = weight * norm + (1 - weight);
    result.set(at, mean / norm);
  }
  return result;
}
