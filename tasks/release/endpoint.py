"""Stage: the Serve application runs. Adapters come and go without it being deployed again."""

from __future__ import annotations

from serving.app import serve_document
from tasks.clients.serve_rest import ServeRest
from tasks.records import ServedEndpoint
from tasks.release.openai_chat import ChatEndpoint
from tasks.release.settings import ServeSettings
from tasks.run import RunContext
from tasks.stage import stage


@stage
def ensure_endpoint(context: RunContext, settings: ServeSettings) -> ServedEndpoint:
    """Deploy the application where it does not run with these settings already; raises RolloutFailed."""
    serve = ServeRest(settings.dashboard, context.page.say)
    deployed = serve.ensure(serve_document(settings.server), settings.timeout_s)
    context.page.say(f"application {settings.server.app_name} {'was deployed' if deployed else 'was running already'}")
    ChatEndpoint(settings.url).model_ids()
    return ServedEndpoint(url=settings.url, base_model_id=settings.server.base_model_id, deployed=deployed)
