// Real processes of gymckpt, started for one test and always ended with it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";

export const REPOSITORY = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const PYTHON = process.env.GYMCKPT_PYTHON ?? path.join(REPOSITORY, ".venv/bin/python");

// Starts `python -m <words>` and resolves once it printed its line of JSON; rejects with what it said on standard error when it ends before.
export async function start(t, ...words) {
  const child = spawn(PYTHON, ["-m", ...words], { cwd: REPOSITORY, stdio: ["ignore", "pipe", "pipe"] });
  const ended = once(child, "exit");
  t.after(() => kill({ child, ended }));
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text) => (said += text));
  const lines = readline.createInterface({ input: child.stdout });
  const first = await Promise.race([
    once(lines, "line").then(([line]) => JSON.parse(line)),
    ended.then(([code]) => {
      throw new Error(`${words.join(" ")} ended with ${code} before it was ready:\n${said}`);
    }),
  ]);
  return { child, ended, ready: first, said: () => said };
}

// SIGKILL: the process has no chance to say anything. Resolves when it is gone.
export async function kill({ child, ended }) {
  child.kill("SIGKILL");
  await ended;
}

export async function startRun(t) {
  const coordinator = await start(t, "gymckpt.cli", "serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--json");
  const address = coordinator.ready.address;
  const [counter, model] = await Promise.all([startCounter(t, address), startMember(t, address, "model")]);
  return { address, counter, model };
}

export const startCounter = (t, address) => startMember(t, address, "counter");

function startMember(t, address, who) {
  return start(t, "tests.e2e.cli.member", who, "--coordinator", address);
}
