// Providers of the AI SDK that read answers by Zod schemas: `node strict.mjs MODEL…` prints what each of them saw, as JSON.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const baseURL = process.env.OPENAI_BASE_URL;
const apiKey = process.env.OPENAI_API_KEY;
const openai = createOpenAI({ baseURL, apiKey });
const providers = {
  "open-responses": createOpenResponses({ name: "gateway", url: `${baseURL}/responses`, apiKey }),
  responses: (model) => openai.responses(model),
  chat: (model) => openai.chat(model),
  messages: createAnthropic({ baseURL, apiKey }),
  gemini: createGoogleGenerativeAI({ baseURL: baseURL.replace(/\/v1$/, "/v1beta"), apiKey }),
};
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const get_weather = tool({
  description: "The weather of a city",
  inputSchema: jsonSchema(city),
  execute: async () => ({ celsius: 12 }),
});
const maxRetries = 0;
const scenes = {
  text: { prompt: "Say hello." },
  tool: { prompt: process.env.ASK, tools: { get_weather }, stopWhen: isStepCount(2) },
};

async function whole(model, options) {
  const { text, steps, finishReason } = await generateText({ model, maxRetries, ...options });
  return { text, finishReason, calls: steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]) };
}

async function streamed(model, options) {
  const errors = [];
  const result = streamText({ model, maxRetries, onError: ({ error }) => errors.push(String(error)), ...options });
  let text = "";
  for await (const piece of result.textStream) text += piece;
  if (errors.length) return { errors };
  const steps = await result.steps;
  const calls = steps[0].toolCalls.map(({ toolName, input }) => [toolName, input]);
  return { text, finishReason: await result.finishReason, calls };
}

const seen = {};
for (const model of process.argv.slice(2)) {
  for (const [name, provider] of Object.entries(providers)) {
    for (const [scene, options] of Object.entries(scenes)) {
      for (const read of [whole, streamed]) {
        const place = `${model} ${name} ${scene} ${read.name}`;
        try {
          seen[place] = await read(provider(model), options);
        } catch (error) {
          seen[place] = { errors: [`${error.name}: ${error.message} ${error.cause ?? ""}`] };
        }
      }
    }
  }
}
console.log(JSON.stringify(seen));
