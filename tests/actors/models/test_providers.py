"""Which models can be asked with what is configured."""

from __future__ import annotations

import pytest

from actors.models.litellm_model import warm_up
from actors.models.provider_names import PROVIDERS
from actors.models.providers import check_model, scrubbed
from events.errors import UnknownModel


def test_the_built_in_model_needs_nothing() -> None:
    check_model("offline/extractive", {})


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY"),
        ("gpt-4o", "OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-pro", "GEMINI_API_KEY"),
        ("openrouter/meta/llama", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_named(name: str, variable: str) -> None:
    with pytest.raises(UnknownModel, match=variable):
        check_model(name, {})
    check_model(name, {variable: "something"})


@pytest.mark.parametrize("name", ["", " ", "openai/", "two words", "offline/gpt", "nonsense", " openai/x"])
def test_impossible_names_are_refused(name: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        check_model(name, {"OPENAI_API_KEY": "k"})
    assert "\n" not in str(caught.value)


def test_local_servers_need_no_key() -> None:
    check_model("ollama/llama3", {})
    check_model("hosted_vllm/anything", {})


def test_no_key_survives_in_a_message() -> None:
    environment = {"OPENAI_API_KEY": "sk-verysecret", "GROQ_API_KEY": "gsk-alsosecret"}
    said = scrubbed("refused sk-verysecret and gsk-alsosecret", environment)
    assert said == "refused <OPENAI_API_KEY> and <GROQ_API_KEY>"


def test_a_provider_that_nobody_knows_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownModel, match=r"did you mean anthropic/"):
        check_model("antropic/claude", {})
    with pytest.raises(UnknownModel, match=r"no provider is called 'foo'"):
        check_model("foo/bar", {})


def test_the_known_providers_are_those_of_the_installed_litellm() -> None:
    litellm = warm_up()
    assert {str(getattr(name, "value", name)) for name in litellm.provider_list} == PROVIDERS
