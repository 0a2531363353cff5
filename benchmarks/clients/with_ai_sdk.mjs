// The AI SDK: its provider for compatible servers, and OpenAI's own with the APIs of chats and of responses.
//
//     node with_ai_sdk.mjs http://127.0.0.1:8000/v1        beside a folder node_modules

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, Output, stepCountIs, streamObject, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { z } from "zod";

const url = process.argv[2];
const ORDER =
  "On 3 March 2021, Brela Stonkard bought 12 units of the copper kettle from Velmor Trading for $1,250.50. " +
  "The bill has not been paid.\n\nExtract the data from this text as JSON.\n" +
  "Fields: buyer (string), count (integer), paid (boolean)";
const TIME = "Convert a quarter past four in the afternoon into HH:MM.";
const WEATHER = "Will it rain in Marlhaven on June 10, 2024?";
const EXPECTED = { buyer: "Brela Stonkard", count: 12, paid: false };
const CALL = { city: "Marlhaven", date: "2024-06-10" };

const order = z.object({ buyer: z.string(), count: z.number().int(), paid: z.boolean() });
const called = [];
const tools = {
  get_weather: tool({
    description: "The weather of a city on a day.",
    inputSchema: z.object({ city: z.string(), date: z.iso.date() }),
    execute: async (input) => {
      called.push(input);
      return "rain";
    },
  }),
};

const compatible = createOpenAICompatible({
  name: "trellm", baseURL: url, apiKey: "unused", supportsStructuredOutputs: true, includeUsage: true,
});
const openai = createOpenAI({ baseURL: url, apiKey: "unused" });
const same = { temperature: 0, maxRetries: 0, maxOutputTokens: 120 };
const kinds = {
  "openai-compatible": compatible("small"),
  "openai, chat": openai.chat("small"),
  "openai, responses": openai.responses("small"),
};

async function whole(stream) {
  let text = "";
  for await (const piece of stream) text += piece;
  return text;
}

const each = {
  generateText: async (model) => {
    const found = await generateText({ model, ...same, system: "Be brief.", prompt: TIME });
    assert.equal(found.text, "16:15");
    assert.equal(found.finishReason, "stop");
    assert.ok(found.usage.outputTokens > 3);
  },
  streamText: async (model) => {
    const found = streamText({ model, ...same, prompt: TIME });
    assert.equal(await whole(found.textStream), "16:15");
    assert.ok((await found.usage).outputTokens > 3);
  },
  generateObject: async (model) => {
    assert.deepEqual((await generateObject({ model, ...same, schema: order, prompt: ORDER })).object, EXPECTED);
  },
  "generateObject of an enum and of an array": async (model) => {
    const moods = ["calm", "joyful", "sad"];
    const one = await generateObject({ model, ...same, output: "enum", enum: moods, prompt: TIME });
    assert.ok(moods.includes(one.object));
    const several = z.object({ n: z.number().int().min(1).max(3) });
    const list = await generateObject({
      model, ...same, temperature: 1, output: "array", schema: several, prompt: TIME,
    });
    for (const item of list.object) assert.ok([1, 2, 3].includes(item.n));
  },
  "generateObject without a schema": async (model) => {
    const found = await generateObject({ model, ...same, output: "no-schema", prompt: ORDER });
    assert.equal(typeof found.object, "object");
  },
  streamObject: async (model) => {
    const found = streamObject({ model, ...same, schema: order, prompt: ORDER });
    let states = 0;
    for await (const _ of found.partialObjectStream) states++;
    assert.deepEqual(await found.object, EXPECTED);
    return `${states} states`;
  },
  "Output.object, whole and streamed": async (model) => {
    const asked = { model, ...same, output: Output.object({ schema: order }), prompt: ORDER };
    assert.deepEqual((await generateText(asked)).output, EXPECTED);
    assert.deepEqual(JSON.parse(await whole(streamText(asked).textStream)), EXPECTED);
  },
  "tools, whole": async (model) => {
    for (const toolChoice of ["auto", "required", { type: "tool", toolName: "get_weather" }]) {
      called.length = 0;
      const found = await generateText({ model, ...same, tools, toolChoice, prompt: WEATHER });
      assert.equal(found.finishReason, "tool-calls");
      assert.deepEqual(found.toolCalls[0].input, CALL);
      assert.deepEqual(called[0], CALL);
    }
  },
  "tools, streamed": async (model) => {
    const found = streamText({ model, ...same, tools, prompt: WEATHER });
    const seen = [];
    for await (const part of found.fullStream) seen.push(part.type);
    assert.ok(seen.includes("tool-input-delta") && seen.includes("tool-result"));
    assert.deepEqual((await found.toolCalls)[0].input, CALL);
  },
  "several steps: a call, its result, the next turn": async (model) => {
    const found = await generateText({ model, ...same, tools, stopWhen: stepCountIs(2), prompt: WEATHER });
    assert.equal(found.steps.length, 2);
    assert.equal(found.steps[0].toolResults[0].output, "rain");
  },
  "an error is an APICallError with its message": async (model) => {
    const asked = { model, ...same, prompt: "word ".repeat(3000) };
    await assert.rejects(generateText(asked), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /context/);
      return true;
    });
  },
};

const versions = JSON.parse(readFileSync("node_modules/ai/package.json", "utf8")).version;
for (const [kind, model] of Object.entries(kinds)) {
  for (const [name, check] of Object.entries(each)) {
    const told = { client: "ai (AI SDK)", version: versions, check: `${kind}: ${name}` };
    try {
      const note = await check(model);
      Object.assign(told, { passed: true, note: note ?? "" });
    } catch (error) {
      Object.assign(told, { passed: false, note: `${error.name}: ${error.message}`.replaceAll("\n", " ").slice(0, 300) });
    }
    console.log(JSON.stringify(told));
  }
}
