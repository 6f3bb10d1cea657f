// A client of Turnlog in JavaScript, with the options that a channel has by default. One command for each thing that a
// test asks of it: `probe COMMAND JSON`. It answers with one JSON object; where a call fails, with what the status says.
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const FILES = [
  "turnlog/v1/event_service.proto",
  "turnlog/v1/server_service.proto",
  "turnlog/v1/session_service.proto",
  "google/rpc/error_details.proto",
  "google/rpc/status.proto",
];
// 64-bit numbers as text: a number of this language holds 53 bits.
const CONTRACT = loader.loadSync(FILES, {
  includeDirs: [path.join(__dirname, "proto")],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { turnlog } = grpc.loadPackageDefinition(CONTRACT);
const v1 = turnlog.v1;

const asked = JSON.parse(process.argv[3]);
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${asked.key}`);

let requests = 0;
const fresh = () => `node-${process.pid}-${Date.now()}-${++requests}`;

const connect = (Service, options) => new Service(asked.address, grpc.credentials.createInsecure(), options);
const sessions = connect(v1.SessionService);
const events = connect(v1.EventService);

/** A unary call as a promise. */
function call(client, method, request, options = {}) {
  return new Promise((resolve, reject) => {
    client[method](request, metadata, options, (error, response) => (error ? reject(error) : resolve(response)));
  });
}

function append(session, parts, options) {
  const request = {
    request_id: fresh(),
    session_id: session,
    authored_by: asked.author,
    caused_by: { kind: "KIND_API" },
    user_message: { parts },
  };
  return call(events, "AppendEvent", request, options);
}

/** Creates a Session and appends its first message. */
async function turn() {
  const made = await call(sessions, "CreateSession", {
    request_id: fresh(),
    agent_deployment_id: asked.deployment,
  });
  const session = made.session.session_id;
  const added = await append(session, [{ text: asked.text }]);
  return { session, run: added.run_id, seq: Number(added.seq) };
}

/** Reads the whole log by pages. */
async function list() {
  const all = [];
  let pages = 0;
  let token = "";
  do {
    const page = await call(events, "ListEvents", {
      session_id: asked.session,
      page_size: asked.page_size,
      page_token: token,
    });
    pages += 1;
    all.push(...page.events.map(told));
    token = page.next_page_token;
  } while (token);
  return { events: all, pages };
}

/** Reads from a cursor to the end of a turn. With `cut` it hangs up after so many events and resumes. */
async function follow() {
  const before = asked.cut ? (await read(0, asked.cut)).events : [];
  const rest = await read(before.length ? before.at(-1).seq : 0, 0);
  return { before, events: rest.events, end: rest.end };
}

function read(after, atMost) {
  return new Promise((resolve, reject) => {
    const seen = [];
    let end = "";
    const stream = events.FollowEvents(
      {
        session_id: asked.session,
        after_seq: after,
        until: { boundary: "BOUNDARY_TURN", run_id: asked.run },
      },
      metadata,
    );
    stream.on("data", (frame) => {
      if (frame.frame === "events") seen.push(...frame.events.events.map(told));
      if (frame.frame === "end") end = frame.end.reason;
      if (atMost && seen.length >= atMost) {
        resolve({ events: seen.slice(0, atMost), end });
        stream.cancel();
      }
    });
    stream.on("error", reject);
    stream.on("end", () => resolve({ events: seen, end }));
  });
}

/** Opens many follows on one channel, appends beside them, and waits until each has the message. */
async function crowd() {
  const caughtUp = [];
  const arrived = [];
  for (let number = 0; number < asked.follows; number += 1) {
    const stream = events.FollowEvents({ session_id: asked.session }, metadata);
    caughtUp.push(until(stream, (frame) => frame.frame === "caught_up"));
    arrived.push(
      until(
        stream,
        (frame) => frame.frame === "events" && frame.events.events.some((event) => event.type === "user.message"),
      ),
    );
  }
  await Promise.all(caughtUp);
  const deadline = Date.now() + asked.seconds * 1000;
  const added = await append(asked.session, [{ text: "to all" }], { deadline });
  await Promise.all(arrived);
  return { seq: Number(added.seq), arrived: arrived.length };
}

function until(stream, seen) {
  return new Promise((resolve, reject) => {
    stream.on("data", (frame) => seen(frame) && resolve());
    stream.on("error", reject);
  });
}

/** Sends a request with many faults. */
async function refused() {
  if (asked.labels) {
    const labels = {};
    for (let number = 0; number < asked.labels; number += 1) labels["ключ".repeat(250) + number] = "value";
    return call(sessions, "CreateSession", {
      request_id: fresh(),
      agent_deployment_id: asked.deployment,
      labels,
    });
  }
  return append(asked.session, new Array(asked.parts).fill({}));
}

/** Keeps two channels alive by pings, one with a follow and one without any call, and tells whether they stayed up. */
async function idle() {
  const pings = {
    "grpc.keepalive_time_ms": 10_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    // Clients share their connections otherwise.
    "grpc.use_local_subchannel_pool": 1,
  };
  const busy = connect(v1.EventService, pings);
  const bare = connect(v1.ServerService, pings);
  await until(busy.FollowEvents({ session_id: asked.session }, metadata), () => true);
  await call(bare, "GetServerInfo", {});
  const lost = await Promise.all([busy, bare].map(lostWithin));
  await call(bare, "GetServerInfo", {});
  return { lost: lost.filter(Boolean) };
}

/** The state that a channel went into within the time; nothing where it stayed as it was. */
function lostWithin(client) {
  const channel = client.getChannel();
  return new Promise((resolve) => {
    channel.watchConnectivityState(channel.getConnectivityState(false), Date.now() + asked.seconds * 1000, (late) =>
      resolve(late ? "" : grpc.connectivityState[channel.getConnectivityState(false)]),
    );
  });
}

/** An event as the tests compare it. What the contract calls unknown has no payload. */
function told(event) {
  const payload = event.payload ? event[event.payload] : {};
  const { seconds, nanos } = event.create_time;
  return {
    seq: Number(event.seq),
    event_id: event.event_id,
    type: event.type,
    time: `${seconds}.${String(nanos).padStart(9, "0")}`,
    payload: event.payload ?? "",
    ignorable: event.ignorable,
    ...(payload.parts && { text: payload.parts.map((part) => part.text).join("") }),
    ...(payload.arguments && { arguments: plain(payload.arguments) }),
    ...(payload.usage && { input_tokens: payload.usage.input_tokens }),
    ...(event.payload === "run_failed" && { error: payload.error.message }),
  };
}

/** A Struct as an object. */
function plain(struct) {
  return Object.fromEntries(Object.entries(struct.fields).map(([key, value]) => [key, valueOf(value)]));
}

// The loader has google.protobuf.Struct built in, with names in camel case whatever it was told.
function valueOf(value) {
  switch (value.kind) {
    case "structValue":
      return plain(value.structValue);
    case "listValue":
      return value.listValue.values.map(valueOf);
    case "nullValue":
      return null;
    default:
      return value[value.kind];
  }
}

/** A status with its details decoded. */
function failure(error) {
  const shown = { code: error.code, message: error.details ?? String(error), fields: [] };
  const [raw] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!raw) return shown;
  for (const detail of decode("google.rpc.Status", raw).details) {
    const kind = detail.type_url.split("/").at(-1);
    const held = decode(kind, detail.value);
    if (kind === "google.rpc.ErrorInfo") Object.assign(shown, held);
    if (kind === "google.rpc.BadRequest") shown.fields = held.field_violations.map((violation) => violation.field);
  }
  return shown;
}

/** A message by its full name. */
function decode(name, raw) {
  return CONTRACT[name].deserialize(raw);
}

const COMMANDS = { turn, list, follow, crowd, refused, idle };
COMMANDS[process.argv[2]]()
  .catch((error) => ({ error: failure(error) }))
  // The program ends with its answer, whatever streams are open still.
  .then((answer) => process.stdout.write(`${JSON.stringify(answer)}\n`, () => process.exit(0)));
