import { describe, expect, test } from "vitest";

import type { Row } from "../api";
import { aligned, Curve, smoothed } from "../curve";

const row = (index: number, step: number, loss: number | null, attempt = 1): Row => [index, step, attempt, index, { loss }];

function curveOf(...rows: Row[]): Curve {
  const curve = new Curve();
  curve.take({ is_reset: false, stride: 1, rows });
  return curve;
}

describe("Curve", () => {
  test("takes each point once, also if it comes twice", () => {
    const curve = curveOf(row(0, 1, 3), row(1, 2, 2));
    expect(curve.take({ is_reset: false, stride: 1, rows: [row(1, 2, 2), row(2, 3, 1)] })).toBe(true);
    expect(curve.rows.map((each) => each[0])).toEqual([0, 1, 2]);
    expect(curve.take({ is_reset: false, stride: 1, rows: [] })).toBe(false);
  });

  test("drops what it has if the server asks for it", () => {
    const curve = curveOf(row(0, 1, 3), row(1, 2, 2));
    curve.take({ is_reset: true, stride: 2, rows: [row(0, 1, 3)] });
    expect([curve.rows.length, curve.stride, curve.last]).toEqual([1, 2, 0]);
  });

  test("a later start takes the place of the steps that were lost", () => {
    const curve = curveOf(row(0, 1, 9), row(1, 2, 8), row(2, 3, 7), row(3, 2, 5, 2));
    expect([...curve.surviving("loss")].map(([step, { value }]) => [step, value])).toEqual([
      [1, 9],
      [2, 5],
    ]);
  });

  test("the newest value skips points without one", () => {
    expect(curveOf(row(0, 1, 3), row(1, 2, null)).newest("loss")).toEqual({ value: 3, step: 1 });
    expect(curveOf(row(0, 1, 3)).newest("accuracy")).toBeNull();
  });

  test("losses come first among the metrics", () => {
    const curve = new Curve();
    const values = { accuracy: 1, gradient_norm: 1, validation_loss: 1, loss: 1 };
    curve.take({ is_reset: false, stride: 1, rows: [[0, 1, 1, 0, values]] });
    expect(curve.metrics).toEqual(["loss", "validation_loss", "gradient_norm", "accuracy"]);
  });
});

test("curves on one axis have every x once, in order", () => {
  const one = new Map([[3, 1], [1, 2]]);
  const two = new Map([[2, 5], [3, 6]]);
  expect(aligned([one, two])).toEqual({ x: [1, 2, 3], ys: [[2, null, 1], [null, 5, 6]] });
});

test("smoothing keeps a constant, and a weight of 0 keeps everything", () => {
  const points = new Map([[1, 4], [2, 4], [3, 4]]);
  expect(smoothed(points, 0)).toBe(points);
  for (const value of smoothed(points, 0.9).values()) expect(value).toBeCloseTo(4);
});
