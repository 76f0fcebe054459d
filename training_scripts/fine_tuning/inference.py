"""Request handlers for fine-tuned models: `code/inference.py` in their model.tar.gz.

SageMaker's inference toolkit calls the handlers. A request has either `messages` (a conversation, if the
tokenizer has a chat template) or `prompt`. Two members are optional: `max_new_tokens` (1 to 4,096, by
default 256) and `temperature` (by default 0: always the likeliest token). The answer has `text`. The
toolkit responds to every error of a handler with HTTP status 400. It sends the result of `output_fn`
unchanged.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

JSON = "application/json"
MAX_NEW_TOKENS = 4096
KNOWN = ("messages", "prompt", "max_new_tokens", "temperature")


def model_fn(model_dir: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and its tokenizer, on the GPU if there is one."""
    has_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if has_gpu and torch.cuda.is_bf16_supported() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype)
    return model.to("cuda" if has_gpu else "cpu").eval(), AutoTokenizer.from_pretrained(model_dir)


def input_fn(request_body: str | bytes, request_content_type: str) -> dict[str, Any]:
    """Return the parsed request.

    Raises:
        ValueError: the request is not a JSON object, has an unknown member or a wrong value, or does not have exactly
            one of `messages` and `prompt`.
    """
    if request_content_type.partition(";")[0].strip() != JSON:
        raise ValueError(f"content type {request_content_type!r} is not supported; send {JSON}")
    request = json.loads(request_body)
    if not isinstance(request, dict):
        kind = type(request).__name__
        raise ValueError(f"the request is of type {kind}; allowed: a JSON object")  # noqa: TRY004  # of the client
    if unknown := sorted(request.keys() - set(KNOWN)):
        got, allowed = ", ".join(map(repr, unknown)), ", ".join(KNOWN)
        raise ValueError(f"the request has unknown keys: {got}; allowed: {allowed}")
    if ("messages" in request) == ("prompt" in request):
        raise ValueError("the request needs either messages or a prompt, and not both")
    if not isinstance(request.get("prompt", ""), str):
        raise ValueError(f"prompt is {request['prompt']!r}; allowed: text")  # noqa: TRY004  # of the client
    most = request.get("max_new_tokens", 1)
    if type(most) is not int or not 1 <= most <= MAX_NEW_TOKENS:
        raise ValueError(f"max_new_tokens is {most!r}; allowed: 1 to {MAX_NEW_TOKENS}")
    temperature = request.get("temperature", 0.0)
    if type(temperature) not in {int, float} or not 0 <= temperature <= sys.float_info.max:
        raise ValueError(f"temperature is {temperature!r}; allowed: a number of at least 0")
    return request


@torch.inference_mode()
def predict_fn(
    input_data: dict[str, Any], model: tuple[PreTrainedModel, PreTrainedTokenizerBase]
) -> dict[str, Any]:
    """Return the answer to a parsed request: `text`, the continuation by the model.

    Raises:
        ValueError: messages are given to a tokenizer without a chat template.
    """
    decoder, tokenizer = model
    tokens = _tokens(input_data, tokenizer).to(decoder.device)
    temperature = float(input_data.get("temperature", 0.0))
    sampling = {"do_sample": True, "temperature": temperature} if temperature > 0 else {}
    made = decoder.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=input_data.get("max_new_tokens", 256),
        pad_token_id=tokenizer.pad_token_id,
        **(sampling or {"do_sample": False}),
    )
    return {"text": tokenizer.decode(made[0, tokens.shape[1] :], skip_special_tokens=True).strip()}


def output_fn(prediction: dict[str, Any], accept: str) -> str:
    """Return the answer as JSON text; `accept` is ignored."""
    del accept
    return json.dumps(prediction)


def _tokens(request: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    """Return the token ids to continue, (1, time).

    Raises:
        ValueError: messages are given to a tokenizer without a chat template.
    """
    if "prompt" in request:
        return tokenizer(request["prompt"], return_tensors="pt")["input_ids"]
    if not tokenizer.chat_template:
        raise ValueError("the tokenizer has no chat template; send a prompt")
    return tokenizer.apply_chat_template(
        request["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
