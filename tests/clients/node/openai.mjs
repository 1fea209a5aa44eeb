// Scenes with OpenAI's own client for Node: `node openai.mjs SCENE` prints what the application saw, as JSON.
import OpenAI, { toFile } from "openai";

const client = new OpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "Hello" }];
const parameters = { type: "object", properties: { port: { type: "string" } }, required: ["port"] };
const tools = [{ type: "function", function: { name: "tide", description: "Height of the tide", parameters } }];

async function failure(work) {
  let said = "";
  try {
    await work((text) => (said += text ?? ""));
  } catch (error) {
    const { status, code, type, param, message, requestID } = error;
    return { class: error.constructor.name, status, code, type, param, message, requestID, said };
  }
  return { class: null, said };
}

const scenes = {
  async create() {
    const { data, request_id } = await client.chat.completions.create({ model: "words", messages }).withResponse();
    return { text: data.choices[0].message.content, usage: data.usage, model: data.model, request_id };
  },
  async stream() {
    const options = { model: "words", messages, stream: true, stream_options: { include_usage: true } };
    let text = "";
    let usage = null;
    const finish = [];
    for await (const chunk of await client.chat.completions.create(options)) {
      text += chunk.choices[0]?.delta.content ?? "";
      if (chunk.choices[0]?.finish_reason) finish.push(chunk.choices[0].finish_reason);
      usage = chunk.usage ?? usage;
    }
    return { text, usage, finish };
  },
  async helper() {
    const stream = client.chat.completions.stream({ model: "scripted", messages, tools });
    const { tool_calls } = (await stream.finalChatCompletion()).choices[0].message;
    return tool_calls.map((call) => [call.id, call.function.name, call.function.arguments]);
  },
  async tools() {
    const asked = await client.chat.completions.create({ model: "tide", messages, tools });
    const message = asked.choices[0].message;
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "6" };
    const answer = await client.chat.completions.create({ model: "scripted", messages: [...messages, message, result] });
    return { call: message.tool_calls[0].function, text: answer.choices[0].message.content };
  },
  async models() {
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids, one: (await client.models.retrieve("org/m:1")).id };
  },
  async unauthorized() {
    const stranger = client.withOptions({ apiKey: "sk-nobody-knows" });
    return failure(() => stranger.chat.completions.create({ model: "words", messages }));
  },
  async forbidden() {
    return failure(() => client.chat.completions.create({ model: "closed", messages, stream: true }));
  },
  async invalid() {
    return failure(() => client.chat.completions.create({ model: "words", messages, temperature: 3 }));
  },
  async broken() {
    return failure(async (say) => {
      const stream = await client.chat.completions.create({ model: "scripted", messages, stream: true });
      for await (const chunk of stream) say(chunk.choices[0]?.delta.content);
    });
  },
  async completions() {
    const prompts = { model: "texts", prompt: ["one two", "three"], n: 2 };
    const { data, request_id } = await client.completions.create({ ...prompts, logprobs: 1 }).withResponse();
    const streamed = {};
    let usage = null;
    const options = { ...prompts, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await client.completions.create(options)) {
      for (const { index, text } of chunk.choices) streamed[index] = (streamed[index] ?? "") + text;
      usage = chunk.usage ?? usage;
    }
    const chat = await client.completions.create({ model: "scripted", prompt: "Hello" });
    const refused = await failure(() => client.completions.create({ model: "scripted", prompt: "Hello", echo: true }));
    return { id: data.id, choices: data.choices, request_id, streamed, usage, chat: chat.choices[0].text, refused };
  },
  async broken_completions() {
    return failure(async (say) => {
      const stream = await client.completions.create({ model: "texts", prompt: "Hello", stream: true });
      for await (const chunk of stream) say(chunk.choices[0]?.text);
    });
  },
  async translations() {
    const sound = Buffer.alloc(2000);
    sound.write("RIFF", 0);
    sound.writeUInt32LE(1992, 4);
    sound.write("WAVEfmt ", 8);
    sound.set([16, 0, 0, 0, 1, 0, 1, 0, 0x80, 0x3e, 0, 0, 0, 0x7d, 0, 0, 2, 0, 16, 0], 16); // 16 kHz, 16 bits, mono
    sound.write("data", 36);
    sound.writeUInt32LE(1956, 40);
    const file = await OpenAI.toFile(sound, "herons.wav");
    const plain = await client.audio.translations.create({ model: "scribe", file });
    const verbose = await client.audio.translations.create({ model: "scribe", file, response_format: "verbose_json" });
    const text = await client.audio.translations.create({ model: "scribe", file, response_format: "vtt" });
    return { plain, verbose, text };
  },
  async embed() {
    const { data, usage } = await client.embeddings.create({ model: "vectors", input: ["one two", "three"] });
    return { vectors: data.map(({ embedding }) => [...embedding]), usage };
  },
  async moderations() {
    const { id, model, results } = await client.moderations.create({ input: ["a heron", "kill"] });
    return { id, model, flagged: results.map(({ flagged, categories }) => [flagged, categories["violence/graphic"]]) };
  },
  async images() {
    const { data } = await client.images.generate({ model: "pictures", prompt: "a heron", n: 2 });
    return data.map(({ b64_json }) => b64_json);
  },
  async edits() {
    const bytes = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNoaGgAAAMEAYFL09IQAAAAAElFTkSuQmCC", "base64");
    const image = () => toFile(bytes, "a.png", { type: "image/png" });
    const asked = { model: "pictures", prompt: "a hat", image: [await image(), await image()], mask: await image() };
    const { data } = await client.images.edit({ ...asked, n: 2 });
    const types = [];
    for await (const event of await client.images.edit({ ...asked, stream: true, partial_images: 1 })) {
      types.push(event.type);
    }
    return { images: data.map(({ b64_json }) => b64_json), types };
  },
  async image_stream() {
    const stream = await client.images.generate({ model: "pictures", prompt: "a heron", stream: true, partial_images: 2 });
    const types = [];
    for await (const event of stream) types.push(event.type);
    return types;
  },
  async broken_images() {
    return failure(async () => {
      const stream = await client.images.generate({ model: "pictures", prompt: "a heron", stream: true, n: 2 });
      for await (const _ of stream);
    });
  },
  async responses() {
    const input = "Hello";
    const flat = [{ type: "function", name: "tide", parameters, strict: false }];
    const { output_text, usage, status } = await client.responses.create({ model: "scripted", input });
    const stream = client.responses.stream({ model: "scripted", input, tools: flat });
    const calls = (await stream.finalResponse()).output.filter((item) => item.type === "function_call");
    return { output_text, usage, status, calls: calls.map((call) => [call.call_id, call.arguments]) };
  },
  async broken_responses() {
    const types = [];
    const ended = await failure(async () => {
      const stream = await client.responses.create({ model: "scripted", input: "Hello", stream: true });
      for await (const event of stream) types.push(event.type);
    });
    return { types, class: ended.class };
  },
  async batches() {
    const body = { model: "scripted", messages };
    const lines = ["a", "b"].map((custom_id) => ({ custom_id, method: "POST", url: "/v1/chat/completions", body }));
    const text = lines.map((line) => JSON.stringify(line)).join("\n");
    const expires_after = { anchor: "created_at", seconds: 3600 };
    const file = await client.files.create({ file: await toFile(Buffer.from(text), "in.jsonl"), purpose: "batch", expires_after });
    const endpoint = "/v1/chat/completions";
    let batch = await client.batches.create({ input_file_id: file.id, endpoint, completion_window: "24h" });
    while (!["completed", "failed"].includes(batch.status)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      batch = await client.batches.retrieve(batch.id);
    }
    const output = await (await client.files.content(batch.output_file_id)).text();
    const listed = [];
    for await (const one of client.files.list()) listed.push(one.id);
    const batches = [];
    for await (const one of client.batches.list({ limit: 1 })) batches.push(one.id);
    const deleted = await client.files.delete(file.id);
    return {
      lifetime: file.expires_at - file.created_at,
      counts: batch.request_counts,
      ids: output.trim().split("\n").map((line) => JSON.parse(line).custom_id).sort(),
      listed: [file.id, batch.output_file_id].every((id) => listed.includes(id)),
      listed_batch: batches.includes(batch.id),
      deleted: deleted.deleted,
    };
  },
  async leave() {
    const stream = await client.chat.completions.create({ model: "scripted", messages, stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content === "lo") break;
    return "left";
  },
};

console.log(JSON.stringify(await scenes[process.argv[2]]()));
