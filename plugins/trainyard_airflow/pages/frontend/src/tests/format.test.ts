import { expect, test } from "vitest";

import { bytes, capacity, duration, number, setting, usd } from "../format";

test.each([
  [0, "0 s"],
  [61, "1 min 01 s"],
  [3600 * 5 + 60, "5 h 01 min"],
  [86400 * 3, "3 d 0 h"],
  [null, ""],
])("duration %s", (seconds, text) => expect(duration(seconds)).toBe(text));

test.each([
  [true, null, "spot"],
  [false, null, "on demand"],
  [false, "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5-november", "plan p5-november"],
])("capacity %s %s", (isSpot, plan, text) =>
  expect(capacity({ is_spot: isSpot, training_plan: plan })).toBe(text),
);

test.each([
  [0, "$0.00"],
  [0.0021, "$0.0021"],
  [1234.5, "$1,234.50"],
  [null, "unknown"],
])("usd %s", (amount, text) => expect(usd(amount)).toBe(text));

test.each([
  [2.55212, "2.552"],
  [0.0000031, "3.10e-6"],
  [12345.6, "12,346"],
  [0, "0"],
])("number %s", (value, text) => expect(number(value)).toBe(text));

test("bytes and settings", () => {
  expect(bytes(10_513_000)).toBe("10.5 MB");
  expect(setting(null)).toBe("–");
  expect(setting(["a"])).toBe('["a"]');
});
