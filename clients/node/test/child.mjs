// A program with a server and a processor, which a test kills. It prints their process ids.
import { processor, startServer } from "@changefeed/client";

const server = await startServer();
const p = processor({
  source: process.env.SOURCE, name: "unit", createLeases: true, auth: { key: process.env.KEY }, on: { log() {} },
  handler: () => new Promise(() => console.log(JSON.stringify({ server: server.pid, processor: p.pid }))),
});
await p.run();
