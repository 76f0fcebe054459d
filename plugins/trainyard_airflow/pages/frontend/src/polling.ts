// Polling while the page is visible, at a lower rate once the data no longer changes.

import { useEffect, useState } from "preact/hooks";

import { Refusal } from "./api";

const WAIT_MS = 1000;
const IDLE_MS = 15000;
const MOST_MS = 30000;

// Return the error of the last poll, or null. `ask` polls once, and returns whether the data may still change.
export function usePolling(ask: () => Promise<boolean>, key: string, waitMs = WAIT_MS): { error: string | null } {
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let timer: number | undefined;
    let isLeft = false;
    let isAsking = false;
    let failures = 0;
    const next = async () => {
      if (isAsking) return; // the running poll schedules the next one
      isAsking = true;
      let pause = IDLE_MS;
      if (!document.hidden) {
        try {
          pause = (await ask()) ? waitMs : IDLE_MS;
          failures = 0;
          setError(null);
        } catch (refusal) {
          failures += 1;
          pause = Math.min(MOST_MS, waitMs * 2 ** failures);
          setError(refusal instanceof Error ? refusal.message : String(refusal));
          if (refusal instanceof Refusal && [403, 404].includes(refusal.status)) return;
        }
      }
      isAsking = false;
      if (!isLeft) timer = window.setTimeout(next, pause);
    };
    const wake = () => {
      if (document.hidden) return;
      window.clearTimeout(timer);
      void next();
    };
    void next();
    document.addEventListener("visibilitychange", wake);
    return () => {
      isLeft = true;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
    };
  }, [key]);
  return { error };
}
