"""The sizes from which on the package does the same in another way, or begins anew.

A test that compares two ways sets one of them by the name that it has here, and no other file of tests knows where in
the package it stands.
"""

from typing import Any

import pytest

_GUIDES = "trellm.guides."
_JSON = "trellm.guides.json_schema."
_MODELS = "trellm.engine.models."
_DEVICE = "trellm.engine.device."
PLACES = {
    "alternatives_kept": _GUIDES + "tagged.either_guide.MAX_STATES",
    "attention_of_many_tokens": _MODELS + "blocks.attention._MANY",
    "attention_tile": _MODELS + "blocks.attention._TILE",
    "attention_worth_threads": _MODELS + "blocks.attention._MUCH",
    "bits_of_a_member_set": _JSON + "lower.objects.member_set.MAX_BITS",
    "block_of_choices": "trellm.kernels.logits.triton_select.BLOCK",
    "block_of_cuts": "trellm.kernels.logits.triton_scan.CUT_BLOCK",
    "block_of_masks": "trellm.kernels.logits.triton_mask.BLOCK",
    "block_of_scans": "trellm.kernels.logits.triton_scan.BLOCK",
    "block_of_training": "trellm.training.passes.BLOCK",
    "bodies_read_aside": "trellm.serve.hosting.shared.MAX_SLOW",
    "bytes_of_media_kept": _MODELS + "media.features.MAX_BYTES",
    "bytes_of_known_states": "trellm.engine.decode.guide_cache._MAX_BYTES",
    "bytes_of_vocabulary_tables": _GUIDES + "lift.tables.MAX_CACHED_BYTES",
    "call_for_all_layers": _MODELS + "packed.host._MUCH",
    "common_characters_at_once": _JSON + "automata.counting.MAX_REACHED",
    "compared_transformers": _MODELS + "ways._COMPARED",
    "constants_apart": _JSON + "lower.formulas.FEW",
    "dense_rows": _DEVICE + "state_table.DENSE",
    "few_rows_of_a_launch": _DEVICE + "batch.FEW",
    "goal_states": _GUIDES + "required_content.automaton.MAX_GOAL_STATES",
    "joint_conditions": _JSON + "lower.strings.lowering.MANY_CONDITIONS",
    "joint_states": _JSON + "lower.strings.lowering.MAX_JOINT_STATES",
    "keys_sorted_at_once": "trellm.kernels.suffix.tree.PIECE",
    "layer_for_threads": _MODELS + "packed.host._LARGE",
    "locks_before_a_look": _GUIDES + "locks._State.most",
    "logits_scored_at_once": "trellm.engine.decode.forward_output.AT_ONCE",
    "matrix_vector_kernel": "trellm.kernels.decoder.operations.MATVEC",
    "memory_worth_checking": "trellm.engine.engine.LARGE",
    "multiplied_schemas": _JSON + "algebra.normalise.MAX_MULTIPLIED",
    "multiplied_strings": _JSON + "algebra.strings.MAX_MULTIPLIED",
    "names_alike": _JSON + "lower.objects.member_set.ENOUGH",
    "names_in_a_set": _JSON + "lower.objects.names.MAX_NAMES",
    "quantized_call_for_all_layers": _MODELS + "packed.quantized._MUCH",
    "quantized_tokens_at_once": _MODELS + "packed.quantized._MAX_TOKENS",
    "quantized_work_worth_threads": _MODELS + "packed.quantized._WORTH",
    "records_of_a_state": _DEVICE + "state_table.RECORDS",
    "remembered_schemas": _GUIDES + "json_guide.remembered.most",
    "remembered_schemas_bytes": _GUIDES + "json_guide.remembered.most_bytes",
    "rules_of_names": _JSON + "lower.objects.names.MANY_RULES",
    "seconds_of_a_dropped_body": "trellm.serve.endpoints.answers.DROP_SECONDS",
    "seconds_of_a_short_constraint": "trellm.serve.constraints.compiler.LONG_SECONDS",
    "seconds_of_a_slow_step": "trellm.serve.dispatcher.SLOW_STEP_SECONDS",
    "seconds_of_gathered_events": "trellm.serve.dispatcher.SEND_INTERVAL",
    "states_before_goals_are_asked": _GUIDES + "required_content.completion.SOON",
    "steps_of_a_quick_answer": "trellm.engine.decode.sampler.QUICK",
    "share_of_memory": "trellm.engine.engine.SHARE",
    "subsets_at_once": _GUIDES + "automata.positions.MAX_SUBSETS",
    "subsets_before_a_look": _GUIDES + "automata.conditions.STEPS_AT_ONCE",
    "subsets_with_room": _GUIDES + "automata.conditions.FIRST_ROOM",
    "times_until_known": _DEVICE + "state_table.OFTEN",
    "tokens_of_a_whole_prompt": _MODELS + "blocks.step.SDPA_PROMPT",
    "tokens_that_leave_a_loop": _GUIDES + "lift.tables.MAX_LEAVING",
    "values_excluded_at_once": _JSON + "lower.strings.places.MAX_AT_ONCE",
    "walks_before_a_narrow_loop": _GUIDES + "lift.tables.WALKS_OF_NARROW",
    "ways_through_an_object": _JSON + "lower.objects.choices.MAX_WAYS",
    "weights_of_paths": "trellm.engine.exact_sampling.path.MAX_WEIGHTS",
    "widths_of_a_launch": _DEVICE + "batch.WIDTHS",
}


def thresholds(patch: pytest.MonkeyPatch, **sizes: Any) -> None:
    """Set some of these sizes for as long as the patch lasts; None leaves one as it is."""
    for name, size in sizes.items():
        if size is not None:
            patch.setattr(PLACES[name], size)
