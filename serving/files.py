"""What the files of an adapter in the object store are called."""

from __future__ import annotations

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MANIFEST, CERTIFICATE = "manifest.json", "certificate.json"
