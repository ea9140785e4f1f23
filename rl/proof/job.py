"""Ray job entry point: the training side's answers to the probes (``python -m rl.proof.job JSON``).

transformers and peft, the stack that trained the adapter, answer greedily and with the log-probability of every token.
"""

from __future__ import annotations

import base64
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from rl.events import EventLog, Fault, Probed
from rl.output import clean_output
from rl.proof.questions import Conversation, probe_conversations
from rl.proof.settings import ProbeJob


def answer(model: Any, processor: Any, messages: Conversation, max_reply_tokens: int) -> tuple[str, list[float]]:
    """Greedy reply and the log-probability of each of its tokens, the end of turn included."""
    plain, images = _without_urls(messages)
    text = processor.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[text], images=images, return_tensors="pt").to(model.device)
    with torch.no_grad():
        output = model.generate(
            **inputs, max_new_tokens=max_reply_tokens, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
    ids = output.sequences[0, inputs["input_ids"].shape[1] :]
    logprobs = torch.stack(output.logits)[:, 0].float().log_softmax(-1).cpu()
    said = processor.decode(ids, skip_special_tokens=True)
    return said, logprobs.gather(-1, ids[:, None].cpu())[:, 0].tolist()


def _without_urls(messages: Conversation) -> tuple[Conversation, list[Any]]:
    """Messages with bare image parts, and the images themselves."""
    plain: Conversation = []
    images = []
    for message in messages:
        if isinstance(message["content"], str):
            plain.append(message)
            continue
        text, image = message["content"]
        png = base64.b64decode(image["image_url"]["url"].partition(",")[2])
        images.append(Image.open(io.BytesIO(png)).convert("RGB"))
        plain.append({"role": message["role"], "content": [text, {"type": "image"}]})
    return plain, images


def run(job: ProbeJob, log: EventLog) -> None:
    """Answer every probe with the adapter on its base and report the replies."""
    base = AutoModelForImageTextToText.from_pretrained(job.base_dir, dtype=getattr(torch, job.dtype))
    # Penalties and the like that come with the base count neither in training nor at the endpoint (serving/app.py).
    ends = {name: getattr(base.generation_config, name) for name in ("eos_token_id", "pad_token_id")}
    base.generation_config = GenerationConfig(**ends)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with warnings.catch_warnings():
        # An adapter that lacks modules is loaded all the same, with fresh ones in their place.
        warnings.filterwarnings("error", message=".*missing adapter keys")
        model = PeftModel.from_pretrained(base, job.adapter_dir).to(device).eval()
    processor = AutoProcessor.from_pretrained(job.base_dir)
    for number, messages in enumerate(probe_conversations(job.questions)):
        text, logprobs = answer(model, processor, messages, job.questions.max_reply_tokens)
        log.emit(Probed(number=number, text=text, logprobs=tuple(logprobs)))


def main(argv: list[str]) -> None:
    job = ProbeJob.model_validate_json(argv[1])
    log = EventLog()
    if not Path(job.adapter_dir).is_dir():
        missing = f"{job.adapter_dir} is not there; was the run cleaned up?"
        log.emit(Fault(boundary="CannotProbe", message=missing, fatal=True))
        raise SystemExit(1)
    try:
        run(job, log)
    except UserWarning as error:
        log.emit(Fault(boundary="CannotProbe", message=f"{job.adapter_dir} is not whole: {error} Export again."))
        raise


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
