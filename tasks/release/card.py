"""A registered adapter in words: what it is, how good, what is proven, how it is served. Pure."""

from __future__ import annotations

from tasks.records import Certificate, Verdict

LIMITS = (
    "It was trained and measured on mazes of one size drawn as one kind of picture. A solve rate is a share of few "
    "mazes: mind the interval. The judge mazes chose no step; the selection mazes did."
)


def model_card(registered_model: str, certificate: Certificate, verdict: Verdict) -> str:
    """Markdown, as the version's description in MLflow."""
    adapter, (low, high) = certificate.adapter, verdict.interval
    base = registered_model.removesuffix("-adapters")
    proven = "The certificate holds: the endpoint serves what was trained."
    if not certificate.holds:
        proven = f"**The certificate does not hold**: {'; '.join(certificate.failures)}."
    solved = f"{verdict.candidate_solved} of {verdict.num_mazes} judge mazes"
    return f"""LoRA adapter of `{base}`, step {adapter.step}: solves {solved} through the endpoint \
(95% interval {low:.0%} to {high:.0%}).

- Gate: {verdict.decision} - {verdict.reason}.
- {proven}
- Digest of its files: `{adapter.sha256}`, at {adapter.uri}.
- Data: the training and selection mazes that the run lists as its inputs.
- Limits: {LIMITS}

Serve it with vLLM:

```
vllm serve <folder of {base}> --enable-lora --lora-modules {adapter.name}=<folder of this version>
```

Load it with peft:

```python
folder = mlflow.artifacts.download_artifacts("models:/{registered_model}/<version>")
model = PeftModel.from_pretrained(base, folder)
```
"""
