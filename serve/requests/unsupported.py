"""Fields that other servers know and this one does not: each is refused by name, with what there is instead."""

from __future__ import annotations

_NO_SOUND = "the model does not speak"
AUDIO = ("input_audio", "audio_url", "audio")
"""Types of parts that are audio, here or on other servers."""
PARTS: dict[str, str] = {
    **dict.fromkeys(AUDIO, "/v1/chat/completions takes audio as input_audio and as audio_url"),
    **dict.fromkeys(("video_url", "input_video", "video"), "films are not read; send images or audio"),
    **dict.fromkeys(("file", "input_file", "document"), "files are not read; send texts, images and audio"),
}
"""Types of parts of messages that other servers know, and why there are none here."""
KNOWN: dict[str, str] = {
    "audio": _NO_SOUND,
    "prediction": "there are no predicted outputs; leave it out",
    "web_search_options": "the server reaches nothing outside itself",
    "verbosity": "say in a message how long the answer is to be",
    "top_logprobs": "of completions logprobs is the number of the likeliest tokens, and responses have none",
    "use_beam_search": 'beams are trellm: {"beams": 4}',
    "length_penalty": 'beams are trellm: {"beams": {"width": 4, "length_penalty": 1.0}}',
    "early_stopping": 'beams are trellm: {"beams": {"width": 4, "early_stopping": true}}',
    "suffix": "the model continues texts, and fills no gaps",
    "chat_template": "the template is the model's own",
    "mm_processor_kwargs": "images and audio are prepared as the model's own files say",
    "guided_whitespace_pattern": 'white space is trellm: {"json": {"whitespace": "compact"}}',
    "no_stop_trim": "stop strings are no part of the output",
    "lora_path": "an adapter that the server has is named in model",
    "session_params": "there are no sessions; send the whole chat",
    "n_predict": "max_tokens is what there is",
    "mirostat": "use temperature, top_p or min_p",
    "typical_p": "use temperature, top_p or min_p",
    "repeat_penalty": "repetition_penalty is what there is",
    "echo": "a chat's answer is apart from its messages",
    "best_of": "of chats n is how many answers there are; choose among them",
    "continue_final_message": "a prompt is continued anyway; of /v1/chat/completions it continues the last message",
    "add_generation_prompt": "a prompt has no template",
    "chat_template_kwargs": "a prompt has no template",
    "reasoning_effort": "of chats only, whose template knows of thinking",
    "reasoning": "of chats only, whose template knows of thinking",
    "functions": "give them as tools",
    "function_call": "give it as tool_choice",
    "conversation": "there are no conversations by name; previous_response_id goes on from a response",
    "max_tool_calls": "the server calls no tools itself",
}
