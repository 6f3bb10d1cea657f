// What Restate invokes: a handler without steps, by its SDK for TypeScript. argv: the port.
import * as restate from "@restatedev/restate-sdk";

const service = restate.service({ name: "Bench", handlers: { answer: async (ctx, text) => "ok" } });
restate.endpoint().bind(service).listen(Number(process.argv[2]));
