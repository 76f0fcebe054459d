// Button that stops a run by Airflow's API after a second click.

import { useState } from "preact/hooks";

import { stopRun, type RunKey } from "./api";

export function StopButton({ runKey }: { runKey: RunKey }) {
  const [state, setState] = useState<"idle" | "asked" | "sent" | string>("idle");
  if (state === "sent") return <span class="hint">stopping…</span>;
  if (state === "asked") {
    return (
      <span class="confirm">
        Mark the run failed and stop its jobs?
        <button
          class="danger"
          onClick={() =>
            stopRun(runKey).then(
              () => setState("sent"),
              (error: Error) => setState(`not stopped: ${error.message}`),
            )
          }
        >
          Stop it
        </button>
        <button onClick={() => setState("idle")}>Go on</button>
      </span>
    );
  }
  return (
    <>
      {state === "idle" ? null : <span class="fault">{state}</span>}
      <button onClick={() => setState("asked")}>Stop run</button>
    </>
  );
}
