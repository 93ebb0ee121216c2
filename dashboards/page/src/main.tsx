// Takes the place of the plain page, which is what there is without JavaScript, as soon as there is
// something to show in it.
import { render } from "preact";
import { AgentData } from "./data/agent_data";
import { App } from "./app";
import { Live } from "./data/live";
import { applyTheme, storedTheme } from "./view/theme";
import { viewOf } from "./view/view";

const PATIENCE_MS = 3_000;

applyTheme(storedTheme());
const data = new AgentData();
const live = new Live(data, viewOf(location.hash).optimizer);

const takeOver = () => {
  clearTimeout(timer);
  stopWaiting();
  document.getElementById("plain")?.remove();
  render(<App data={data} live={live} />, document.getElementById("app")!);
};
const timer = setTimeout(takeOver, PATIENCE_MS);
const stopWaiting = data.subscribe(takeOver);
live.start();
