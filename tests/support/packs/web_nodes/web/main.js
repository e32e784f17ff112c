import { app } from "../../scripts/app.js";
import { api } from "../../scripts/api.js";
import { shout } from "./lib/shout.js";

app.registerExtension({
  name: "tests.web_nodes",
  async setup() {
    window.webNodes = { told: [], greeting: null };
    api.addEventListener("web_nodes/told", ({ detail }) => window.webNodes.told.push(shout(detail.text)));
    const answer = await api.fetchApi("/web_nodes/greet/page");
    window.webNodes.greeting = await answer.json();
  },
  async nodeCreated(node) {
    if (node.comfyClass === "WebNodesTell") node.color = "#223344";
  },
});
