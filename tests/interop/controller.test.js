// A controller in another language, with the protos as its only knowledge, drives real processes.
// The invariants that each test sees from outside stand in brackets in its name.

import assert from "node:assert/strict";
import test from "node:test";

import { Controller, REASONS, Refusal } from "./controller.js";
import { kill, startCounter, startRun } from "./processes.js";

const SESSION = "s1";

function controllerOf(t, address) {
  const controller = new Controller(address);
  t.after(() => controller.close());
  return controller;
}

async function call(counter, route, episode, more = {}) {
  const headers = { "x-gymckpt-episode": episode, "x-gymckpt-session": SESSION, ...more };
  return fetch(`${counter.ready.http}${route}`, { method: "POST", headers });
}

async function valueOf(answer) {
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).value;
}

async function countTo(counter, episode, value) {
  await valueOf(await call(counter, "/seed_session", episode));
  return valueOf(await call(counter, `/add?by=${value}`, episode));
}

async function refusalOf(promise) {
  const error = await promise.then(
    () => assert.fail("was not refused"),
    (refused) => refused,
  );
  assert.ok(error instanceof Refusal, `a failure of the transport, not a refusal: ${error}`);
  assert.ok(REASONS.includes(`REASON_${error.reason}`), `${error.reason} is not in errors.proto`);
  return error;
}

test("a checkpoint created from Node is published, watched and listed as latest [C01, S04]", async (t) => {
  const { address, counter } = await startRun(t);
  const controller = controllerOf(t, address);
  await countTo(counter, "r1", 5);

  const progress = await controller.create("step-1", { labels: { step: "1" }, controller_state: Buffer.from("rng 7") });

  const { checkpoint } = progress.at(-1).progress;
  assert.equal(checkpoint.stage, "CHECKPOINT_STAGE_PUBLISHED");
  assert.equal(checkpoint.episodes, 1);
  const watched = await controller.watch("step-1");
  assert.equal(watched.at(-1).progress.checkpoint.stage, "CHECKPOINT_STAGE_PUBLISHED");
  const latest = await controller.ask("GetCheckpoint", { checkpoint_id: "latest" });
  assert.equal(latest.checkpoint.checkpoint_id, "step-1");
  assert.deepEqual(latest.episodes, [{ rollout_id: "r1", attempt: 0 }]);
  assert.deepEqual(latest.checkpoint.labels, { step: "1" });
  assert.equal(latest.controller_state.toString(), "rng 7");
});

test("a checkpoint under way is watched from Node until it is aborted from Node [X04]", async (t) => {
  const { address, counter } = await startRun(t);
  const controller = controllerOf(t, address);
  await countTo(counter, "r1", 1);
  const held = call(counter, "/hold", "r1");
  await untilBlocked(controller);

  const created = controller.create("blocked", { prepare_timeout: { seconds: 50 } });
  const creating = refusalOf(created);
  await untilKnown(controller, "blocked");
  const watching = controller.watch("blocked");
  const aborted = await controller.ask("AbortCheckpoint", { checkpoint_id: "blocked", why: "changed my mind" });

  assert.equal(aborted.checkpoint.stage, "CHECKPOINT_STAGE_ABORTED");
  assert.match(aborted.checkpoint.why_aborted, /changed my mind/);
  assert.equal((await creating).reason, "CHECKPOINT_ABORTED");
  assert.equal((await watching).at(-1).progress.checkpoint.stage, "CHECKPOINT_STAGE_ABORTED");
  await fetch(`${counter.ready.http}/release`);
  assert.equal(await valueOf(await held), 1);
});

test("after kill -9 a rollout continues from Node's checkpoint as the next attempt, and the old attempt is refused [V03, C09, X13]", async (t) => {
  const { address, counter } = await startRun(t);
  const controller = controllerOf(t, address);
  await countTo(counter, "r1", 5);
  await controller.create("step-1");
  await kill(counter);
  const successor = await startCounter(t, address);

  const progress = await controller.restore("again", "latest");

  const end = progress.at(-1);
  assert.equal(end.stage, "RESTORE_STAGE_RESTORED");
  assert.equal(end.done, true);
  assert.deepEqual(end.restored, [{ source: { rollout_id: "r1", attempt: 0 }, target: { rollout_id: "r1", attempt: 1 } }]);
  assert.equal(await valueOf(await call(successor, "/add?by=2", "r1-a1")), 7);
  const stale = await call(successor, "/add?by=2", "r1");
  assert.equal(stale.status, 409);
  assert.equal(stale.headers.get("x-gymckpt-reason"), "STALE_ATTEMPT");
});

test("refusals carry their gRPC code, a reason of errors.proto, and what they are about [X20, C08]", async (t) => {
  const { address } = await startRun(t);
  const controller = controllerOf(t, address);

  const unknown = await refusalOf(controller.ask("GetCheckpoint", { checkpoint_id: "nowhere" }));
  assert.deepEqual([unknown.code, unknown.reason], ["NOT_FOUND", "CHECKPOINT_NOT_FOUND"]);
  assert.match(unknown.message, /nowhere/);

  const invalid = await refusalOf(controller.create("step-1", { episodes: [{ rollout_id: "r1" }, { rollout_id: "" }] }));
  assert.deepEqual([invalid.code, invalid.reason], ["INVALID_ARGUMENT", "INVALID_FIELD"]);
  assert.equal(invalid.metadata.field, "episodes[1].rollout_id");

  await controller.create("step-1");
  const other = await refusalOf(controller.create("step-1", { full: true }));
  assert.deepEqual([other.code, other.reason], ["ALREADY_EXISTS", "ARGUMENT_CONFLICT"]);
});

// Repeats a question until the answer satisfies, for at most a minute.
async function until(ask, satisfies, what) {
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    if (satisfies(await ask())) return;
  }
  assert.fail(`never seen: ${what}`);
}

function untilBlocked(controller) {
  const blocked = ({ members }) => members.some((member) => member.report?.blocker_count > 0);
  return until(() => controller.ask("ExplainBlockers", {}), blocked, "a blocker");
}

function untilKnown(controller, id) {
  const known = ({ checkpoints }) => checkpoints.some((checkpoint) => checkpoint.checkpoint_id === id);
  return until(() => controller.ask("ListCheckpoints", {}), known, `checkpoint ${id}`);
}
