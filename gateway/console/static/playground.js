// The playground: sends one message to each chosen model, and shows the answers as they come.
(() => {
  "use strict";

  const form = document.getElementById("play");
  if (!form) return;
  const sides = [];
  const stop = document.getElementById("stop");
  const send = document.getElementById("send");
  const number = new Intl.NumberFormat("en");

  const element = (tag, className, text = "") => {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = text;
    return made;
  };

  // One model with its conversation.
  class Side {
    constructor() {
      const fragment = document.getElementById("side").content.cloneNode(true);
      this.root = fragment.querySelector("section");
      this.model = fragment.querySelector("select");
      this.talk = fragment.querySelector(".talk");
      this.messages = [];
      this.running = null;
      this.model.addEventListener("change", () => this.describe());
      fragment.querySelector(".remove").addEventListener("click", () => remove(this));
      document.getElementById("sides").append(fragment);
      this.describe();
    }

    describe() {
      this.root.querySelector(".policy").textContent = this.model.selectedOptions[0].dataset.note;
      this.root.setAttribute("aria-label", this.model.value);
      showCode();
    }

    clear() {
      this.running?.abort();
      this.messages = [];
      this.talk.replaceChildren();
    }

    request(message) {
      const system = form.elements.system.value.trim();
      const temperature = parseFloat(form.elements.temperature.value);
      const most = parseInt(form.elements.max_tokens.value, 10);
      return {
        model: this.model.value,
        messages: [
          ...(system ? [{ role: "system", content: system }] : []),
          ...this.messages,
          { role: "user", content: message },
        ],
        ...(Number.isNaN(temperature) ? {} : { temperature }),
        ...(Number.isNaN(most) ? {} : { max_tokens: most }),
      };
    }

    async run(message) {
      const run = this.request(message);
      this.talk.append(element("p", "turn mine", message));
      const turn = element("div", "turn theirs");
      const thought = element("p", "faint reasoning");
      const answer = element("p", "answer");
      const foot = element("p", "foot faint", "waiting …");
      turn.append(thought, answer, foot);
      this.talk.append(turn);
      turn.setAttribute("aria-busy", "true");
      const state = { started: performance.now(), requestId: "", failed: false, stopped: false };
      this.running = new AbortController();
      try {
        for await (const line of lines(run, this.running.signal)) {
          if (line.request_id) state.requestId = line.request_id;
          if (line.text !== undefined) answer.append(line.text);
          if (line.reasoning !== undefined) thought.append(line.reasoning);
          if (line.error !== undefined) {
            state.failed = true;
            turn.append(element("p", "fault", line.error));
          }
          if (line.end !== undefined && line.end !== "stop") foot.dataset.end = line.end;
          if (line.text !== undefined || line.reasoning !== undefined) {
            foot.textContent = "answering …";
            this.talk.scrollTop = this.talk.scrollHeight;
          }
        }
      } catch (error) {
        if (error.name === "AbortError") state.stopped = true;
        else {
          state.failed = true;
          turn.append(element("p", "fault", error.message));
        }
      }
      this.running = null;
      turn.removeAttribute("aria-busy");
      if (answer.textContent) {
        this.messages.push({ role: "user", content: message }, { role: "assistant", content: answer.textContent });
      }
      await this.showCost(foot, state);
      this.talk.scrollTop = this.talk.scrollHeight;
    }

    async showCost(foot, state) {
      foot.textContent = state.stopped ? "stopped" : state.failed ? "" : (foot.dataset.end ?? "");
      if (!state.requestId) return;
      const answer = await fetch(form.dataset.calls + encodeURIComponent(state.requestId));
      if (!answer.ok) return; // a refused call has no line
      const call = await answer.json();
      const seconds = (call.duration_ms - (call.first_token_ms ?? 0)) / 1000;
      const parts = [
        ...(foot.textContent ? [foot.textContent] : []),
        [call.cost, form.dataset.currency, call.estimated ? "(estimated)" : ""].filter(Boolean).join(" "),
        `${number.format(call.tokens_in)} tokens in, ${number.format(call.tokens_out)} out`,
        ...(call.first_token_ms ? [`first token ${number.format(call.first_token_ms)} ms`] : []),
        ...(seconds >= 0.1 && call.tokens_out > 1 ? [`${(call.tokens_out / seconds).toFixed(1)} tokens/s`] : []),
        ...(call.served_model && call.served_model !== this.model.value ? [`served by ${call.served_model}`] : []),
      ];
      foot.textContent = `${parts.join(" · ")} · `;
      const link = element("a", "", "the call");
      link.href = form.dataset.usage + encodeURIComponent(state.requestId);
      foot.append(link);
      foot.dataset.cost = call.cost;
    }
  }

  // The lines of JSON of one call, as they arrive.
  async function* lines(run, signal) {
    const body = new URLSearchParams({ xsrf: form.elements.xsrf.value, run: JSON.stringify(run) });
    const answer = await fetch(form.dataset.run, { method: "POST", body, signal });
    if (!(answer.headers.get("content-type") ?? "").includes("ndjson")) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      throw new Error(page.querySelector("main p")?.textContent ?? "The call was refused.");
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
  }

  const add = () => {
    const side = new Side();
    sides.push(side);
    if (sides.length > 1 && side.model.options.length > 1) {
      side.model.selectedIndex = (sides[0].model.selectedIndex + sides.length - 1) % side.model.options.length;
      side.describe();
    }
    showSides();
  };
  const remove = (side) => {
    side.clear();
    sides.splice(sides.indexOf(side), 1);
    side.root.remove();
    showSides();
    document.getElementById("add-side").focus(); // the button that had the focus is gone
  };
  const showSides = () => {
    const more = document.getElementById("add-side");
    more.disabled = sides.length >= Number(more.dataset.most);
    for (const side of sides) side.root.querySelector(".remove").hidden = sides.length === 1;
  };

  const showCode = () => {
    if (!sides.length) return;
    const message = form.elements.message.value.trim() || "Say hello in five words.";
    const run = sides[0].request(message);
    const json = JSON.stringify(run, null, 2);
    const quoted = json.replaceAll("'", "'\\''");
    const fields = (separator) =>
      Object.entries(run).map(([name, value]) => `    ${name}${separator}${JSON.stringify(value)},\n`).join("");
    const url = JSON.stringify(form.dataset.api);
    document.getElementById("code-curl").textContent =
      `curl ${form.dataset.api}/chat/completions \\\n  -H "Authorization: Bearer $GATEWAY_API_KEY" \\\n` +
      `  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
    document.getElementById("code-python").textContent =
      "# pip install openai\nimport os\n\nfrom openai import OpenAI\n\n" +
      `client = OpenAI(base_url=${url}, api_key=os.environ["GATEWAY_API_KEY"])\n` +
      `stream = client.chat.completions.create(\n${fields("=")}    stream=True,\n)\n` +
      'for chunk in stream:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="")';
    document.getElementById("code-node").textContent =
      '// npm install openai\nimport OpenAI from "openai";\n\n' +
      `const client = new OpenAI({ baseURL: ${url}, apiKey: process.env.GATEWAY_API_KEY });\n` +
      `const stream = await client.chat.completions.create({\n${fields(": ")}    stream: true,\n});\n` +
      'for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta?.content ?? "");';
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const message = form.elements.message.value.trim();
    if (!message || sides.some((side) => side.running)) return;
    form.elements.message.value = "";
    send.setAttribute("aria-busy", "true"); // a disabled button would lose the focus
    stop.disabled = false;
    await Promise.all(sides.map((side) => side.run(message)));
    send.removeAttribute("aria-busy");
    stop.disabled = true;
    showCode();
    form.elements.message.focus();
  });
  form.elements.message.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("input", showCode);
  stop.addEventListener("click", () => sides.forEach((side) => side.running?.abort()));
  document.getElementById("add-side").addEventListener("click", add);
  document.getElementById("clear").addEventListener("click", () => sides.forEach((side) => side.clear()));
  add();
  showCode();
})();
