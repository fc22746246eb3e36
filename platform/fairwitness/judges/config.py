"""Which model judges or writes: an endpoint of the OpenAI protocol, a local model, or rules without a model."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from fairwitness.config import Config
from fairwitness.judges.budget import Prices
from fairwitness.lm.config import ModelConfig


class _Judge(Config):
    """What every kind has."""

    name: str | None = Field(None, min_length=1)
    """Name shown in tables and the report; by default the last part of the model's name."""
    cache_dir: str | None = Field(None, min_length=1)
    """Folder of stored replies, shared by the runs that name it. By default a folder in the run's own directory."""


class EndpointConfig(_Judge):
    """A model behind an endpoint that speaks the OpenAI chat completions protocol."""

    kind: Literal["openai"] = "openai"
    base_url: str = "https://api.openai.com/v1"
    """Address up to and including `/v1`; of a server of your own for example `http://localhost:8000/v1`."""
    model: str = Field(min_length=1)
    """Model as the endpoint names it."""
    api_key_env: str | None = Field("OPENAI_API_KEY", pattern=r"^[A-Z_][A-Z0-9_]*$")
    """Name of the environment variable that holds the key, never the key. Null for a server that wants none."""
    temperature: float | None = Field(0.0, ge=0, le=2)
    """Sampling temperature; null where the model takes none."""
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the endpoint calls the limit on the reply's tokens. OpenAI's newer models want `max_completion_tokens`."""
    max_retries: int = Field(6, ge=0, le=100)
    """Further attempts after a refusal for lack of capacity, an error of the server or a broken connection."""
    timeout_s: float = Field(120.0, gt=0)
    """Seconds that one attempt may take."""
    max_wait_s: float = Field(300.0, gt=0)
    """Longest wait between two attempts. A server that asks for a longer one gets no further attempt."""
    max_concurrency: int = Field(16, ge=1, le=1000)
    """Requests under way at a time."""
    requests_per_minute: float | None = Field(None, gt=0)
    """Requests started per minute at most, repeated attempts included."""
    price_per_million_prompt_tokens: float = Field(0.0, ge=0)
    """Price of a million tokens sent, in any currency."""
    price_per_million_completion_tokens: float = Field(0.0, ge=0)
    """Price of a million tokens received, in the same currency."""
    max_cost: float | None = Field(None, gt=0)
    """What the replies of one run of the job may cost together; no request is made that could go beyond."""

    @property
    def shown_name(self) -> str:
        """`name`, or the last part of `model`."""
        return self.name or self.model.rstrip("/").rsplit("/", 1)[-1]

    @property
    def prices(self) -> Prices:
        """The prices of tokens."""
        return Prices(self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens)

    @field_validator("base_url")
    @classmethod
    def _plain_address(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            is_address = False
        if not is_address:
            raise ValueError("must be an address such as http://localhost:8000/v1")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(
                "must hold no credentials and nothing after ? or #; put the key into an environment variable and name "
                "it in api_key_env"
            )
        return value.rstrip("/")

    @model_validator(mode="after")
    def _budget_has_prices(self) -> Self:
        if self.max_cost is not None and not (
            self.price_per_million_prompt_tokens or self.price_per_million_completion_tokens
        ):
            raise ValueError(
                "max_cost needs price_per_million_prompt_tokens and price_per_million_completion_tokens: without "
                "prices every reply costs 0"
            )
        return self


class LocalModelConfig(_Judge):
    """A chat model that runs on the pool's workers, greedily."""

    kind: Literal["local"] = "local"
    model: ModelConfig
    """The model; its tokenizer must have a chat template."""
    batch_size: int = Field(8, ge=1, le=1024)
    """Prompts that a worker continues at once."""

    @property
    def shown_name(self) -> str:
        """`name`, or the model's."""
        return self.name or self.model.shown_name


class RulesConfig(_Judge):
    """Rules without a model: they read what a text says in so many words, and write nothing."""

    kind: Literal["rules"] = "rules"
    reading: Literal["stated", "answered"] = "stated"
    """`stated`: the choice that a CoT names last. `answered`: the letter that the model gave after the CoT."""

    @property
    def shown_name(self) -> str:
        """`name`, or `rules` with the way of reading."""
        return self.name or f"rules ({self.reading})"


JudgeConfig = Annotated[EndpointConfig | LocalModelConfig | RulesConfig, Field(discriminator="kind")]
"""One judge of a job."""
