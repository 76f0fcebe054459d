import { render } from "preact";

import { FleetPage } from "./fleet_page";
import { openLinksOutside } from "./links";
import { RunPage } from "./run_page";
import "./style.css";
import { followTheme } from "./theme";

followTheme();
openLinksOutside();
const asked = new URLSearchParams(window.location.search);
const isFleet = window.location.pathname.endsWith("/fleet");
render(
  isFleet ? (
    <FleetPage />
  ) : (
    <RunPage runKey={{ dag_id: asked.get("dag_id") ?? "", run_id: asked.get("run_id") ?? "" }} />
  ),
  document.getElementById("page")!,
);
