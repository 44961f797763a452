"""Which environment variable a model needs, known without importing LiteLLM (which takes seconds)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches

from actors.models.offline import OFFLINE_PREFIX
from actors.models.provider_names import PROVIDERS
from events.errors import UnknownModel

KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "text-completion-openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "azure": ("AZURE_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "codestral": ("CODESTRAL_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "cohere_chat": ("COHERE_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "fireworks_ai": ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "xai": ("XAI_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "sambanova": ("SAMBANOVA_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "databricks": ("DATABRICKS_API_KEY", "DATABRICKS_TOKEN"),
    "replicate": ("REPLICATE_API_KEY", "REPLICATE_API_TOKEN"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "watsonx": ("WATSONX_APIKEY", "WATSONX_API_KEY", "WATSONX_TOKEN"),
    "moonshot": ("MOONSHOT_API_KEY",),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "zai": ("ZAI_API_KEY",),
    "github": ("GITHUB_API_KEY",),
    "novita": ("NOVITA_API_KEY",),
    "nebius": ("NEBIUS_API_KEY",),
    "volcengine": ("VOLCENGINE_API_KEY", "ARK_API_KEY"),
    "snowflake": ("SNOWFLAKE_JWT",),
    "ai21": ("AI21_API_KEY",),
}
"""Any one of the variables is enough. Providers not named here (local servers, cloud credential chains) need none."""

BARE_NAMES = (("gpt-", "openai"), ("chatgpt-", "openai"), ("o1", "openai"), ("o3", "openai"), ("o4", "openai"))
BARE_FAMILIES = (("claude", "anthropic"), ("gemini", "gemini"), ("mistral", "mistral"), ("command-", "cohere_chat"))


def provider_of(name: str) -> str:
    """The provider a model name selects, "" when only LiteLLM can tell."""
    head, slash, _ = name.partition("/")
    if slash:
        return head
    return next((provider for start, provider in (*BARE_NAMES, *BARE_FAMILIES) if name.startswith(start)), "")


def check_model(name: str, environment: Mapping[str, str] = os.environ) -> None:
    """Whether a model can be asked with what is configured here; no network, no slow import.

    Errors: UnknownModel for an impossible name or a missing key; its message names the variable to set.
    """
    provider = provider_of(name)
    if not name.strip() or name != name.strip() or any(char.isspace() for char in name) or name.endswith("/"):
        raise UnknownModel(f"{name[:80]!r} is no model name; write provider/model, or offline/extractive")
    if f"{provider}/" == OFFLINE_PREFIX:
        if name != f"{OFFLINE_PREFIX}extractive":
            raise UnknownModel(f"there is no model {name[:80]!r}; the built-in one is offline/extractive")
        return
    if not provider:
        raise UnknownModel(f"{name[:80]!r} names no provider; write provider/model, or offline/extractive")
    if provider not in PROVIDERS:
        near = get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {near[0]}/…?" if near else "see LiteLLM's list of providers"
        raise UnknownModel(f"{name[:80]!r}: no provider is called {provider[:40]!r}; {hint}")
    wanted = KEYS.get(provider, ())
    if wanted and not any(environment.get(variable) for variable in wanted):
        raise UnknownModel(f"{name[:80]} needs a key: set {' or '.join(wanted)}, or choose offline/extractive")


def scrubbed(message: str, environment: Mapping[str, str] = os.environ) -> str:
    """A provider's message without any configured key in it."""
    for variables in KEYS.values():
        for variable in variables:
            secret = environment.get(variable, "")
            if len(secret) >= 6:
                message = message.replace(secret, f"<{variable}>")
    return message
