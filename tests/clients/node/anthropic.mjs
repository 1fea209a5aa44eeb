// Scenes with Anthropic's own client for Node: `node anthropic.mjs SCENE` prints what the application saw, as JSON.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.ANTHROPIC_BASE_URL, apiKey: process.env.GATEWAY_KEY, maxRetries: 1 });
const messages = [{ role: "user", content: "Hello" }];
const input_schema = { type: "object", properties: { port: { type: "string" } }, required: ["port"] };
const tools = [{ name: "tide", description: "Height of the tide", input_schema }];
const asked = { max_tokens: 64, messages };

async function failure(work) {
  let said = "";
  try {
    await work((text) => (said += text ?? ""));
  } catch (error) {
    return { class: error.constructor.name, status: error.status ?? null, kind: error.error?.error?.type ?? null, said };
  }
  return { class: null, said };
}

const scenes = {
  async create() {
    const answers = [];
    for (const model of ["translated", "native"]) {
      const answer = await client.messages.create({ model, ...asked });
      answers.push({ types: answer.content.map((block) => block.type), stop: answer.stop_reason, usage: answer.usage });
    }
    return answers;
  },
  async stream() {
    const texts = [];
    for (const model of ["translated", "native"]) {
      const final = await client.messages.stream({ model, ...asked }).finalMessage();
      texts.push([final.content[0].text.trim(), final.stop_reason]);
    }
    return texts;
  },
  async tools() {
    const final = await client.messages.stream({ model: "translated", tools, ...asked }).finalMessage();
    return final.content.filter((block) => block.type === "tool_use").map((block) => [block.id, block.input]);
  },
  async unauthorized() {
    const stranger = new Anthropic({ baseURL: process.env.ANTHROPIC_BASE_URL, apiKey: "sk-nobody-knows" });
    return failure(() => stranger.messages.create({ model: "translated", ...asked }));
  },
  async forbidden() {
    return failure(() => client.messages.create({ model: "closed", ...asked }));
  },
  async broken() {
    return failure(async (say) => {
      for await (const event of client.messages.stream({ model: "translated", ...asked })) say(event.delta?.text);
    });
  },
  async count() {
    return (await client.messages.countTokens({ model: "translated", messages })).input_tokens;
  },
};

console.log(JSON.stringify(await scenes[process.argv[2]]()));
