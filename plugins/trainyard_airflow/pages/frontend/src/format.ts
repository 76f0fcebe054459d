// Formats of numbers, times and amounts for display.

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function capacity(job: { is_spot: boolean; training_plan?: string | null }): string {
  if (job.training_plan) return `plan ${job.training_plan.split("/").pop()}`;
  return job.is_spot ? "spot" : "on demand";
}

export function usd(amount: number | null | undefined): string {
  if (amount === null || amount === undefined) return "unknown";
  if (amount !== 0 && Math.abs(amount) < 1) return `$${amount.toPrecision(2)}`;
  return `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size !== 0 && size < 0.001) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

export function bytes(value: number | null | undefined): string {
  if (!value) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  return `${Number((value / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

export function clock(time: number | null | undefined): string {
  if (!time) return "";
  return new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function moment(time: number | null | undefined): string {
  if (!time) return "";
  return new Date(time * 1000).toLocaleString([], {
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
  });
}

export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export function setting(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
