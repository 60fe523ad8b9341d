import { ask, type Access } from "./binary.js";
import { ChangefeedError } from "./failures.js";

/** A Letter is a change that was parked. */
export interface Letter {
  id: string;
  key: unknown[];
  /** The id of the document. */
  item: string;
  lease: string;
  /** The last error; empty for a held change. */
  cause: string;
  attempts: number;
  /** Why the change was parked: failed, poison, undecodable, crashed or held. */
  disposition: string;
  parked: Date;
}

/** Box is where the letters of a unit are. */
export interface Box {
  binary: string;
  address: string | undefined;
  source: string;
  leases: string;
  name: string;
  access: Access;
}

/** argumentsOf returns the arguments of a command for a box. */
function argumentsOf(box: Box, command: string): string[] {
  if (box.address === undefined) throw new ChangefeedError("the option deadLetters is missing", "usage");
  return ["dlq", command, box.address, `--name=${box.name}`, `--leases=${box.leases}`, `--source=${box.source}`];
}

/** listLetters lists the letters of a unit. */
export async function* listLetters(box: Box): AsyncGenerator<Letter, void, void> {
  for (const row of await ask(box.binary, argumentsOf(box, "list"), box.access)) {
    if (row.kind !== "letter") continue;
    const { id, key, item, lease, cause, attempts, disposition, parked } = row;
    yield {
      id: String(id), key: key as unknown[], item: String(item), lease: String(lease), cause: typeof cause === "string" ? cause : "",
      attempts: Number(attempts), disposition: String(disposition), parked: new Date(String(parked)),
    };
  }
}

/** retryLetter has a letter handled again by the instance that owns its key. */
export async function retryLetter(box: Box, id: string): Promise<void> {
  await ask(box.binary, [...argumentsOf(box, "retry"), id], box.access);
}

/** releaseKey has the held changes of a key handled without the one that has failed. */
export async function releaseKey(box: Box, key: readonly unknown[]): Promise<void> {
  await ask(box.binary, [...argumentsOf(box, "release"), `--key=${JSON.stringify(key)}`], box.access);
}
