// What the app gives to each tab.
import type { AgentData } from "../data/agent_data";
import type { Live } from "../data/live";
import type { ChangeView } from "../view/use_view";
import type { View } from "../view/view";

export interface TabProps {
  data: AgentData;
  live: Live;
  view: View;
  change: ChangeView;
}
