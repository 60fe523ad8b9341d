import { type ChildProcess, spawn } from "node:child_process";
import { ask, errorOf, findBinary, parseSaid, type Access, type Said } from "./binary.js";
import { ChangefeedError, messageOf } from "./failures.js";
import { awaitCaughtUp, type Lag, lagOf } from "./lag.js";
import { readLines } from "./lines.js";
import { addressOf, type ContainerLike } from "./options.js";

export interface ServerOptions {
  /** The directory of the store. Without it the store is in memory, and gone when the server ends. */
  dir?: string;
  /** Further flags of `changefeed serve`, such as ["--ru", "400"]. */
  flags?: readonly string[];
  binary?: string;
  /** Each line of the server's log. */
  log?(line: string): void;
}

/** FreshContainer is a new container in a new database. */
export interface FreshContainer {
  /** Its address, as source of a processor. */
  address: string;
  database: string;
  id: string;
}

export interface ContainerSpec {
  /** The path of the partition key, or several of a hierarchical key; the default is "/id". */
  partitionKey?: string | readonly string[];
  id?: string;
  /** The number of physical partitions; the default is 1. */
  ranges?: number;
  /** How long all versions and deletes are kept, for the mode "all". */
  retentionMs?: number;
}

/** A fault on order. Without a member but times, the next request is answered as ever. */
export interface Fault {
  /** Only requests of this container; the default is all. */
  container?: string | ContainerLike | FreshContainer;
  /** Only requests with this method; queries are POSTs. */
  method?: string;
  /** The status of the answer, such as 429, 410, 503 or 449; the request has then no effect. */
  status?: number;
  subStatus?: number;
  retryAfterMs?: number;
  /** The request is served, and its answer is lost. */
  lose?: boolean;
  /** The answer comes this much later. */
  delayMs?: number;
  /** How many requests meet the fault; the default is 1. */
  times?: number;
}

let databases = 0; // made by this process

/** TestServer is an account for tests. It ends with this process, however that ends. */
export class TestServer implements AsyncDisposable {
  readonly #launch: (listen: string) => Promise<Launched>;
  readonly #binary: string;
  readonly #access: Access;
  readonly #isKept: boolean;
  #running: Launched;
  readonly endpoint: string;
  readonly key: string;
  readonly connectionString: string;

  constructor(running: Launched, launch: (listen: string) => Promise<Launched>, binary: string, isKept: boolean) {
    this.#running = running;
    this.#launch = launch;
    this.#binary = binary;
    this.#isKept = isKept;
    const { said } = running;
    this.endpoint = String(said.endpoint);
    this.key = String(said.key);
    this.connectionString = String(said.connection_string);
    const ca = typeof said.certificate === "string" ? said.certificate : undefined;
    this.#access = { auth: { key: this.key }, endpoint: this.endpoint, ca };
  }

  /** The process of the server. */
  get pid(): number | undefined { return this.#running.child.pid; }

  /** freshContainer makes a container in a database of its own. */
  async freshContainer(spec: ContainerSpec = {}): Promise<FreshContainer> {
    const { partitionKey = "/id", id = "items", ranges, retentionMs } = spec;
    const database = `test-${process.pid}-${++databases}`;
    const address = new URL(`${database}/${id}`, this.endpoint).href;
    const args = ["create", address, "--pk", [partitionKey].flat().join(",")];
    if (ranges !== undefined) args.push(`--ranges=${ranges}`);
    if (retentionMs !== undefined) args.push(`--retention=${retentionMs}ms`);
    await ask(this.#binary, args, this.#access);
    return { address, database, id };
  }

  /** split splits a physical partition in two; its id is needed only if there are several. */
  async split(container: string | ContainerLike | FreshContainer, partition?: string): Promise<void> {
    await this.#ask("split", container, partition === undefined ? [] : [partition]);
  }

  /** merge merges two neighbouring physical partitions. */
  async merge(container: string | ContainerLike | FreshContainer, a: string, b: string): Promise<void> {
    await this.#ask("merge", container, [a, b]);
  }

  /** partitions returns the ids of the physical partitions of a container, in the order of their ranges. */
  async partitions(container: string | ContainerLike | FreshContainer): Promise<string[]> {
    const rows = await this.#ask("ranges", container, []);
    return rows.filter((row) => row.kind === "partition").map((row) => String(row.id));
  }

  /** lag returns how far behind a unit is. */
  async lag(
    source: string | ContainerLike | FreshContainer, name: string, leases?: string | ContainerLike,
  ): Promise<Lag> {
    const where = {
      source: await this.#address(source), leases: leases === undefined ? undefined : await addressOf(leases),
      access: this.#access,
    };
    return lagOf(this.#binary, where, name);
  }

  /** caughtUp waits until a unit, of whatever processor, has handled every change. */
  async caughtUp(
    source: string | ContainerLike | FreshContainer, name: string,
    o: { timeoutMs?: number; leases?: string | ContainerLike } = {},
  ): Promise<void> {
    await awaitCaughtUp(() => this.lag(source, name, o.leases), o.timeoutMs ?? 30_000);
  }

  /** fail orders a fault for the next requests that fit. */
  async fail(fault: Fault): Promise<void> {
    const { container, method, status, subStatus, retryAfterMs, lose, delayMs, times } = fault;
    const path = container === undefined ? undefined : new URL(await this.#address(container)).pathname.slice(1);
    await this.#order("POST", {
      container: path, method, status, sub_status: subStatus, lose, times,
      retry_after: retryAfterMs === undefined ? undefined : retryAfterMs / 1000,
      delay: delayMs === undefined ? undefined : delayMs / 1000,
    });
  }

  /** clearFaults removes the faults that no request has met. */
  async clearFaults(): Promise<void> { await this.#order("DELETE"); }

  /**
   * restart ends the server and starts it again with the same address and data. With kill, it ends as by a power loss.
   * It needs the option dir.
   */
  async restart({ kill = false }: { kill?: boolean } = {}): Promise<void> {
    if (!this.#isKept) {
      throw new ChangefeedError("restart needs the option dir: a store in memory would be empty", "usage");
    }
    if (kill) this.#running.child.kill("SIGKILL");
    await this.stop();
    this.#running = await this.#launch(new URL(this.endpoint).host);
  }

  /** stop ends the server. */
  async stop(): Promise<void> {
    this.#running.child.stdin?.end();
    await this.#running.closed;
  }

  async [Symbol.asyncDispose](): Promise<void> { await this.stop(); }

  async #order(method: string, fault?: object): Promise<void> {
    const answer = await fetch(new URL("_faults", this.endpoint), {
      method, headers: { authorization: `Bearer ${this.key}` }, ...(fault ? { body: JSON.stringify(fault) } : {}),
    });
    if (!answer.ok) throw new ChangefeedError(`order a fault: ${(await answer.text()).trim()}`, "usage");
  }

  async #address(container: string | ContainerLike | FreshContainer): Promise<string> {
    return typeof container === "object" && "address" in container ? container.address : addressOf(container);
  }

  async #ask(command: string, container: string | ContainerLike | FreshContainer, args: string[]): Promise<Said[]> {
    return ask(this.#binary, [command, await this.#address(container), ...args], this.#access);
  }
}

/** Launched is a server that runs. */
interface Launched {
  child: ChildProcess;
  closed: Promise<void>;
  said: Said;
}

/** launch starts the binary and waits until it serves. */
async function launch(binary: string, args: string[], log: ((line: string) => void) | undefined): Promise<Launched> {
  const child = spawn(binary, args, {
    stdio: ["pipe", "pipe", "pipe"], detached: process.platform !== "win32", windowsHide: true,
  });
  child.stdin.on("error", () => {}); // the server has ended
  let failure: Said | undefined;
  let last: string | undefined;
  readLines(child.stderr, (line) => {
    const said = parseSaid(line);
    if (said.kind === "error") failure = said;
    if (said.msg === line) last = line; // no line of the log
    log?.(line);
  });
  const closed = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const said = await new Promise<Said>((resolve, reject) => {
    child.once("error", (error) => reject(new ChangefeedError(`start ${binary}: ${messageOf(error)}`, "binary")));
    child.once("close", (code, signal) => reject(errorOf(failure, code, signal, last) ??
      new ChangefeedError("changefeed serve has ended at once", "died")));
    readLines(child.stdout, (line) => resolve(parseSaid(line)));
  });
  return { child, closed, said };
}

/** startServer starts an account on a free port of this machine, for tests. */
export async function startServer(o: ServerOptions = {}): Promise<TestServer> {
  const binary = findBinary(o.binary);
  const flags = o.flags ?? [];
  const plain = flags.some((f) => /^--(http|cert)(=|$)/.test(f)) ? [] : ["--http"];
  const store = o.dir === undefined ? [] : ["--db", o.dir];
  const more = [...plain, ...store, ...flags, "-o", "json", "--faults", "--until-stdin-closes"];
  const again = (listen: string) => launch(binary, ["serve", "--listen", listen, ...more], (line) => o.log?.(line));
  return new TestServer(await again("127.0.0.1:0"), again, binary, o.dir !== undefined);
}
