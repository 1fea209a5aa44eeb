// Scenes with the AI SDK and its provider for OpenAI-compatible servers: `node ai_sdk.mjs SCENE` prints JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateImage, generateSpeech, generateText, isStepCount, jsonSchema, Output } from "ai";
import { streamText, tool, transcribe } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const gateway = createOpenAICompatible({
  name: "gateway",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const sounds = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY });
const prompt = "Hello";
const maxRetries = 0;
const port = { type: "object", properties: { port: { type: "string" } }, required: ["port"], additionalProperties: false };
const tide = tool({
  description: "Height of the tide",
  inputSchema: jsonSchema(port),
  execute: async ({ port }) => `6 metres at ${port}`,
});

async function failure(work) {
  try {
    await work();
  } catch (error) {
    return { name: error.name, status: error.statusCode, message: error.message, retryable: error.isRetryable };
  }
  return { name: null };
}

async function read(options) {
  const errors = [];
  const result = streamText({ prompt, maxRetries, onError: ({ error }) => errors.push(error?.message ?? error), ...options });
  let text = "";
  let thrown = null; // the cut connection, which this SDK reports besides the error frame
  try {
    for await (const piece of result.textStream) text += piece;
  } catch (error) {
    thrown = error.message;
  }
  return { result, text, errors, thrown };
}

const scenes = {
  async create() {
    const { text, usage, finishReason } = await generateText({ model: gateway("words"), prompt, maxRetries });
    return { text, usage, finishReason };
  },
  async stream() {
    const { result, text, errors } = await read({ model: gateway("words") });
    return { text, errors, usage: await result.usage, finishReason: await result.finishReason };
  },
  async tools() {
    const options = { model: gateway("scripted"), prompt, maxRetries, tools: { tide }, stopWhen: isStepCount(2) };
    const { text, steps } = await generateText(options);
    return { text, calls: steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]) };
  },
  async streamed_tools() {
    const { result, text, errors } = await read({ model: gateway("scripted"), tools: { tide }, stopWhen: isStepCount(2) });
    const steps = await result.steps;
    return { text, errors, calls: steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]) };
  },
  async object() {
    const schema = jsonSchema({
      type: "object",
      properties: { port: { type: "string" }, metres: { type: "integer" } },
      required: ["port", "metres"],
      additionalProperties: false,
    });
    const { output } = await generateText({ model: gateway("record"), prompt, maxRetries, output: Output.object({ schema }) });
    return output;
  },
  async reasoning() {
    const { result, text } = await read({ model: gateway("scripted") });
    return { text, reasoning: await result.reasoningText };
  },
  async unauthorized() {
    const stranger = createOpenAICompatible({ name: "gateway", baseURL: process.env.OPENAI_BASE_URL, apiKey: "sk-no" });
    return failure(() => generateText({ model: stranger("words"), prompt, maxRetries }));
  },
  async forbidden() {
    return failure(() => generateText({ model: gateway("closed"), prompt, maxRetries }));
  },
  async embed() {
    const values = ["one two", "three"];
    const { embeddings, usage } = await embedMany({ model: gateway.embeddingModel("vectors"), values, maxRetries });
    return { embeddings, usage };
  },
  async images() {
    const { images } = await generateImage({ model: gateway.imageModel("pictures"), prompt, n: 2, maxRetries });
    return images.map(({ base64, mediaType }) => ({ base64, mediaType }));
  },
  async speech() {
    const { audio } = await generateSpeech({ model: sounds.speech("voice"), text: "Three herons", voice: "alloy", maxRetries });
    return { length: audio.uint8Array.length, mediaType: audio.mediaType };
  },
  async transcript() {
    const audio = Buffer.concat([Buffer.from("RIFF\0\0\0\0WAVE", "latin1"), Buffer.alloc(400)]); // enough of a WAV
    const { text, durationInSeconds } = await transcribe({ model: sounds.transcription("scribe"), audio, maxRetries });
    return { text, durationInSeconds };
  },
  async broken() {
    const { text, errors, thrown } = await read({ model: gateway("scripted") });
    return { text, errors, thrown };
  },
};

console.log(JSON.stringify(await scenes[process.argv[2]]()));
