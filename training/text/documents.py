"""Documents: tasks laid out as plain prompts and as chats, in segments that say how much each counts."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from . import tools
from .plain import PLAIN_TASKS
from .scenes import draw
from .tasks import SCENE_TASKS, Task, normal_task, sum_task, tool_task, words_task

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
THINK, THOUGHT = "<think>", "</think>"

GIVEN, ANSWER = 1, 2
"""What a segment is: given to the model, or to be written by it. Loss counts them differently."""

PLAIN = 0.4
"""How much of the text is plain sentences and passages without a task, which are 0.04 of the text."""

Segments = list[tuple[str, int]]

_CALL = 'To call one, answer with JSON: {"name": ..., "arguments": {...}}'
_SYSTEMS = (
    "You read texts and answer from them alone.",
    "Answer briefly.",
    "You are a helpful assistant.",
    "Answer in the form that is asked for.",
)

CHAT_TEMPLATE = (
    "{%- if tools %}"
    "{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}"
    "{{- 'You can call these tools:\\n' }}"
    "{%- for tool in tools %}"
    "{%- set inner = tool.function if tool.function is defined else tool %}"
    "{{- {'name': inner.name, 'parameters': inner.parameters} | tojson + '\\n' }}"
    "{%- endfor %}"
    "{{- '" + _CALL + "<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if not (tools and loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""The same as `chat_prompt`, for transformers."""


def plain_prompt(task: Task, lead: str, passage_first: bool = True) -> str:
    """The prompt as a text to go on with: passage, request and lead."""
    request = f"Tools:\n{tools.listed(task.tools)}\n\n{task.request}" if task.tools else task.request
    parts = [task.passage, request] if passage_first else [request, task.passage]
    return "\n\n".join(part for part in parts if part) + ("\n" if lead != "\n" else "") + lead


def messages_of(task: Task, system: str = "") -> list[dict[str, str]]:
    """The prompt as messages, for a chat template."""
    asked = {"role": "user", "content": f"{task.passage}\n\n{task.request}" if task.passage else task.request}
    return [{"role": "system", "content": system}, asked] if system else [asked]


def chat_prompt(messages: list[dict[str, str]], several: list[dict[str, Any]] | None = None) -> str:
    """What the chat template makes of messages and tools, up to where the assistant begins."""
    text = ""
    if several:
        system = messages[0]["content"] + "\n" if messages[0]["role"] == "system" else ""
        text = f"{START}system\n{system}You can call these tools:\n{tools.listed(several)}\n{_CALL}{STOP}\n"
        messages = messages[1:] if system else messages
    text += "".join(f"{START}{message['role']}\n{message['content']}{STOP}\n" for message in messages)
    return f"{text}{START}assistant\n"


def written(task: Task) -> str:
    """What the model writes: the answer, after a thought where there is one."""
    return f"{THINK}{task.thought}{THOUGHT}{task.answer}" if task.thought else task.answer


def drawn(random: Random, held_out: bool) -> Segments:
    """A document for training."""
    kind = random.random()
    is_chat = random.random() < 0.5
    if kind < 0.04:
        return [(draw(random, held_out).passage + END, ANSWER)]
    if kind < PLAIN:
        task = random.choice(PLAIN_TASKS)(random, held_out)
        return chat([task], random) if is_chat else plain(task, random)
    kind = (kind - PLAIN) / (1 - PLAIN)
    if kind < 0.14:
        return _tool_document(random, tool_task(random, held_out), is_chat)
    if kind < 0.2:
        task = words_task(random, held_out)
    elif kind < 0.26:
        task = sum_task(random, held_out)
    elif kind < 0.32:
        task = normal_task(random, None, held_out)
    else:
        return _scene_document(random, is_chat, held_out)
    return chat([task], random) if is_chat else plain(task, random)


def plain(task: Task, random: Random) -> Segments:
    """A task as a plain prompt."""
    lead = random.choice(task.leads)
    prompt = plain_prompt(task, lead, random.random() < 0.75)
    answer = written(task)
    if prompt.endswith(" "):  # it belongs to the token of the word behind
        prompt, answer = prompt[:-1], f" {answer}"
    return [(prompt, GIVEN), (answer + END, ANSWER)]


def chat(several: list[Task], random: Random) -> Segments:
    """Tasks on one passage as a chat, a turn each."""
    first, *others = several
    system = random.choice(_SYSTEMS) if random.random() < 0.3 else ""
    segments = [(chat_prompt(messages_of(first, system), first.tools), GIVEN), (written(first) + STOP, ANSWER)]
    for task in others:
        segments += [
            (f"\n{START}user\n{task.request}{STOP}\n{START}assistant\n", GIVEN),
            (written(task) + STOP, ANSWER),
        ]
    return segments


def _tool_document(random: Random, task: Task, is_chat: bool) -> Segments:
    """A call; in some chats also what came of it."""
    if not is_chat:
        return plain(task, random)
    segments = chat([task], random)
    if random.random() < 0.3:
        result, said = tools.outcome(random, task.value)
        given = f"\n{START}tool\n{json.dumps(result)}{STOP}\n{START}assistant\n"
        segments += [(given, GIVEN), (said + STOP, ANSWER)]
    return segments


def _scene_document(random: Random, is_chat: bool, held_out: bool) -> Segments:
    """One or, in a chat, several tasks on a passage."""
    scene = draw(random, held_out)
    turns = random.randrange(1, 7) if is_chat else 1
    makers, weights = zip(*SCENE_TASKS, strict=True)
    chosen = random.choices(makers, weights, k=turns)
    several = [maker(random, scene, held_out) for maker in chosen]
    if turns > 1:  # all turns are about the passage of the first
        several = [task for task in several if task.passage == scene.passage] or several[:1]
    return chat(several, random) if is_chat else plain(several[0], random)
