// A small controller: it takes, watches and restores checkpoints, with the protos as its only knowledge of gymckpt.

import path from "node:path";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

import { REPOSITORY } from "./processes.js";

const definition = protoLoader.loadSync(
  ["gymckpt/v1/coordinator.proto", "gymckpt/v1/errors.proto", "google/rpc/status.proto", "google/rpc/error_details.proto"],
  {
    includeDirs: [path.join(REPOSITORY, "protos"), path.join(REPOSITORY, "build/proto-deps")],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  },
);
const { gymckpt } = grpc.loadPackageDefinition(definition);
const DETAILS = "grpc-status-details-bin";
const LONGEST_CALL_MILLIS = 60_000;

export const REASONS = gymckpt.v1.Reason.type.value.map((value) => value.name);

export class Controller {
  constructor(address) {
    this.stub = new gymckpt.v1.CoordinatorService(address, grpc.credentials.createInsecure());
  }

  close() {
    this.stub.close();
  }

  // One answer; rejects with a Refusal when the protocol said no.
  ask(method, request) {
    return new Promise((resolve, reject) => {
      this.stub[method](request, { deadline: deadline() }, (error, answer) => (error ? reject(refusal(error)) : resolve(answer)));
    });
  }

  // All answers of a stream; rejects with a Refusal when the protocol said no.
  async follow(method, request) {
    const answers = [];
    try {
      for await (const answer of this.stub[method](request, { deadline: deadline() })) answers.push(answer);
    } catch (error) {
      throw refusal(error);
    }
    return answers;
  }

  create(id, arguments_ = {}) {
    return this.follow("CreateCheckpoint", { checkpoint_id: id, ...arguments_ });
  }

  watch(id) {
    return this.follow("WatchCheckpoint", { checkpoint_id: id });
  }

  restore(restoreId, id, arguments_ = {}) {
    return this.follow("RestoreCheckpoint", { restore_id: restoreId, checkpoint_id: id, ...arguments_ });
  }
}

// A decision of the protocol, told apart from a failure of the transport by its google.rpc.ErrorInfo.
export class Refusal extends Error {
  constructor(code, message, info) {
    super(message);
    this.code = grpc.status[code];
    this.reason = info.reason;
    this.metadata = info.metadata;
  }
}

function refusal(error) {
  const [encoded] = error.metadata?.get(DETAILS) ?? [];
  if (encoded === undefined) return error;
  const status = decode("google.rpc.Status", encoded);
  const info = status.details.find((detail) => detail.type_url.endsWith("/google.rpc.ErrorInfo"));
  if (info === undefined) return error;
  const decoded = decode("google.rpc.ErrorInfo", info.value);
  return decoded.domain === "gymckpt.v1" ? new Refusal(error.code, status.message, decoded) : error;
}

function decode(name, bytes) {
  return definition[name].deserialize(bytes);
}

const deadline = () => Date.now() + LONGEST_CALL_MILLIS;
