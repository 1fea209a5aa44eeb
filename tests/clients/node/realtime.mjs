// A realtime session by OpenAI's client: over the package `ws`, or as a browser opens it.
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import WebSocket from "ws";

const transport = process.argv[2];
// Only browsers have this class in Node 20's place.
globalThis.WebSocket ??= WebSocket;
const client = new OpenAI({ dangerouslyAllowBrowser: transport === "websocket" });
const kind = transport === "ws" ? OpenAIRealtimeWS : OpenAIRealtimeWebSocket;
const talk = new kind({ model: "talks", dangerouslyAllowBrowser: true }, client);
const seen = { said: "", status: "", model: "" };

talk.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
talk.on("session.created", (event) => {
  seen.model = event.session.model;
  const content = [{ type: "input_text", text: "grey herons" }];
  talk.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  talk.send({ type: "response.create" });
});
talk.on("response.output_audio_transcript.delta", (event) => {
  seen.said += event.delta;
});
talk.on("response.done", (event) => {
  seen.status = event.response.status;
  talk.close();
  console.log(JSON.stringify(seen));
});
