// Components that both pages share.

import type { ComponentChildren } from "preact";

const TONES: Record<string, string> = {
  success: "good",
  succeeded: "good",
  failed: "bad",
  "stopped by a rule": "bad",
  "stopped by its cost cap": "warn",
  Completed: "good",
  Failed: "bad",
  Stopped: "warn",
  error: "bad",
};

export function Pill({ text, tone }: { text: string; tone?: string }) {
  return <span class={`pill ${tone ?? TONES[text] ?? "warn"}`}>{text}</span>;
}

export function Tile(props: { name: string; value: string; unit?: string; note?: string; tone?: string }) {
  return (
    <div class={`tile ${props.tone ?? ""}`}>
      <div class="name">{props.name}</div>
      <div class="value">
        {props.value || "–"} {props.unit && props.value ? <small>{props.unit}</small> : null}
      </div>
      {props.note ? <div class="note">{props.note}</div> : null}
    </div>
  );
}

export function Card({ title, children, aside }: { title: string; children: ComponentChildren; aside?: ComponentChildren }) {
  return (
    <section class="card">
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Fault({ text }: { text: string }) {
  return (
    <p class="fault" role="alert">
      {text}
    </p>
  );
}
