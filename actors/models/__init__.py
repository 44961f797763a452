"""Language models behind the `Model` port: LiteLLM for any provider, and the built-in offline stand-in."""
