"""The Serve application as the document that Ray's REST API takes. Pure: nothing of Ray is imported."""

from __future__ import annotations

from typing import Any

from serving.settings import ServerSettings

CHAMPION = "champion"
"""``<base_model_id>:champion`` is whatever adapter was promoted last."""


def adapter_model_id(settings: ServerSettings, adapter_name: str) -> str:
    """What clients call an adapter."""
    return f"{settings.base_model_id}:{adapter_name}"


def champion_uri(settings: ServerSettings) -> str:
    """The object that says which adapter is the champion; it lies beside the adapters, never among them."""
    return f"{settings.adapters_uri}.champion.json"


def serve_document(settings: ServerSettings) -> dict[str, Any]:
    """Body of ``PUT /api/serve/applications/``: declarative, applications that it does not name are removed.

    Each node has a proxy: KubeRay's readiness probe asks every worker of a RayService for one, and a worker without it
    never becomes ready (ray-project/kuberay#4994).
    """
    host, _, port = settings.listen.partition(":")
    return {
        "http_options": {"host": host, "port": int(port)},
        "proxy_location": "EveryNode",
        "applications": [
            {
                "name": settings.app_name,
                "route_prefix": "/",
                "import_path": "serving.front:build_app",
                "runtime_env": {"env_vars": {**_media_limits(settings), **settings.env}},
                "args": {
                    "door": settings.door.model_dump(mode="json"),
                    "max_images": settings.max_images,
                    "llm_configs": [_llm_config(settings)],
                    "ingress_cls_config": {
                        "ingress_cls": "serving.ingress:ChampionIngress",
                        "ingress_extra_kwargs": {"champion_uri": champion_uri(settings)},
                    },
                    "ingress_deployment_config": {"num_replicas": 1},
                },
            }
        ],
    }


NOWHERE = "nowhere.invalid"
"""A host that cannot be (RFC 6761): vLLM takes an empty list of allowed hosts for all hosts."""


def _media_limits(settings: ServerSettings) -> dict[str, str]:
    """The door's limits once more, as vLLM reads them: nothing that passes the door reaches further."""
    return {
        "VLLM_MAX_IMAGE_PIXELS": str(settings.door.max_image_pixels),
        "VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB": str(max(1, int(settings.door.max_image_mb))),
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
    }


def _llm_config(settings: ServerSettings) -> dict[str, Any]:
    hardware: dict[str, Any] = {}
    if settings.device == "cpu":
        hardware = {"accelerator_config": {"kind": "cpu"}}
    elif settings.accelerator_type:
        hardware = {"accelerator_type": settings.accelerator_type}
    return {
        "model_loading_config": {"model_id": settings.base_model_id, "model_source": settings.model_source},
        **hardware,
        "server_cls": "serving.server:AdapterServer",
        "engine_kwargs": {
            "dtype": settings.dtype,
            "max_model_len": settings.max_model_len,
            "max_num_seqs": settings.max_num_seqs,
            "limit_mm_per_prompt": {"image": settings.max_images, "video": 0},
            "allowed_media_domains": list(settings.door.allowed_media_domains) or [NOWHERE],
            "enable_lora": True,
            "max_lora_rank": settings.max_lora_rank,
            "max_loras": settings.max_loras,
            "max_cpu_loras": settings.max_cpu_loras,
            # Sampling values are the request's or vLLM's own: training takes none from the base's files either.
            "generation_config": "vllm",
            **settings.engine_kwargs,
        },
        "lora_config": {
            "dynamic_lora_loading_path": settings.adapters_uri,
            "max_num_adapters_per_replica": settings.max_cpu_loras,
        },
        "deployment_config": {"num_replicas": settings.num_replicas, **queue_limits(settings)},
    }


def queue_limits(settings: ServerSettings) -> dict[str, int]:
    """As many requests as a replica generates for at a time wait in its engine, and as many before it; who comes then
    is answered 503 at once. Ray Serve LLM's own limit is a thousand million."""
    return {"max_ongoing_requests": 2 * settings.max_num_seqs, "max_queued_requests": settings.max_num_seqs}
