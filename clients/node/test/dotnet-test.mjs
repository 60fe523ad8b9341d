// A unit that the .NET processor has begun.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, fresh, server, start } from "./world.mjs";

const cut = "20000000000000000000000000000000";
const ranges = [["", cut], [cut, "FF"]];

test("continues a unit that .NET began, and hands it back", async (t) => {
  const ids = (from) => Array.from({ length: 10 }, (_, i) => String(from + i));
  const source = await fresh({ ranges: 2 }, ...ids(0));
  const { container: leases, address } = await fresh({ partitionKey: "/id" });
  const { resource: database } = await client.database(source.database).read();
  const { resource: monitored } = await source.container.read();
  const prefix = `unit${new URL(server.endpoint).hostname}_${database._rid}_${monitored._rid}`;
  await leases.items.create({ id: `${prefix}.info` });
  for (const [i, [min, max]] of ranges.entries()) {
    await leases.items.create({
      id: `${prefix}..${i}`, version: 0, LeaseToken: String(i), FeedRange: { Range: { min, max } }, Owner: null,
      ContinuationToken: '"10"', properties: {}, timestamp: "2026-11-22T03:04:39.9045171Z", Mode: "Incremental Feed",
    });
  }
  for (const id of ids(10)) await source.container.items.create({ id, pk: id });
  const { seen, handler } = collect();
  const { p, run } = await start(t, source, { handler, leases: address, createLeases: false });
  await p.caughtUp();
  await p.stop();
  await run;
  assert.deepEqual(seen.sort(), ids(10), "exactly what came after the positions of .NET");
  for (const [i, [min, max]] of ranges.entries()) {
    const { resource: lease } = await leases.item(`${prefix}..${i}`, `${prefix}..${i}`).read();
    assert.deepEqual(
      [lease.version, lease.LeaseToken, lease.FeedRange, lease.Owner, lease.ContinuationToken, lease.Mode],
      [0, String(i), { Range: { min, max } }, null, '"20"', "Incremental Feed"],
    );
  }
});
