import { describe, expect, test } from "vitest";

import type { FleetRow } from "../api";
import { compared, filtered, sorted } from "../table";

function row(run_id: string, values: Partial<FleetRow> = {}): FleetRow {
  return {
    dag_id: "train_end_to_end",
    run_id,
    state: "success",
    verdict: "succeeded",
    note: null,
    start: null,
    end: null,
    duration_s: null,
    is_over: true,
    model: "gpt",
    instances: "1 x ml.m5.large",
    accelerators: 0,
    stage: null,
    waits_for_person: false,
    cost_usd: null,
    ceiling_usd: null,
    figures: {},
    settings: {},
    has_report: false,
    ...values,
  };
}

const names = (rows: FleetRow[]) => rows.map((each) => each.run_id);

test("rows without a value come last in both directions", () => {
  const rows = [row("a", { cost_usd: 2 }), row("b"), row("c", { cost_usd: 1 })];
  expect(names(sorted(rows, "cost_usd", false))).toEqual(["c", "a", "b"]);
  expect(names(sorted(rows, "cost_usd", true))).toEqual(["a", "c", "b"]);
});

describe("filtered", () => {
  const rows = [row("one", { verdict: "failed" }), row("two", { instances: "8 x ml.p4d.24xlarge" })];

  test("every word must be found, whatever its case", () => {
    expect(names(filtered(rows, "P4D gpt"))).toEqual(["two"]);
    expect(names(filtered(rows, "p4d failed"))).toEqual([]);
    expect(names(filtered(rows, " "))).toEqual(["one", "two"]);
  });

  test("a column's name asks that column only", () => {
    expect(names(filtered(rows, "verdict:failed"))).toEqual(["one"]);
    expect(names(filtered(rows, "run_id:failed"))).toEqual([]);
  });
});

test("compared shows the settings that differ and all figures", () => {
  const { settings, figures } = compared([
    row("a", { settings: { seed: 1, rules: ["x"] }, figures: { test_loss: 1 } }),
    row("b", { settings: { seed: 2, rules: ["x"] } }),
  ]);
  expect(settings).toEqual([{ name: "seed", values: [1, 2] }]);
  expect(figures).toEqual([{ name: "test_loss", values: [1, undefined] }]);
});
