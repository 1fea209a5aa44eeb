"""Settings: one tree of frozen Structs for one TOML file; a change of a name here is a change of the file format.

`gateway.config.loader` reads and checks a file. Relative paths in a file start at its folder. Provider options stay a
plain table here: the plugin's own `Options` type decides (`Settings.provider_options`).
Sharp edge: seconds are floats, bytes are ints, money is `Amount`, an int of 1e-9 currency units.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct, structs

from gateway.amounts import NANO
from gateway.config.console_settings import ConsoleSettings as ConsoleSettings
from gateway.config.console_settings import MailSettings as MailSettings
from gateway.config.endpoints import Endpoint as Endpoint
from gateway.config.model_patterns import PriceRule as PriceRule
from gateway.config.model_patterns import Rule
from gateway.config.notify_settings import NotifySettings as NotifySettings
from gateway.config.oidc_settings import GrantSettings as GrantSettings
from gateway.config.oidc_settings import OidcSettings as OidcSettings
from gateway.config.origins import Origins
from gateway.config.price_settings import AmountSettings as AmountSettings
from gateway.config.price_settings import MaxPriceSettings as MaxPriceSettings
from gateway.config.price_settings import Prices
from gateway.config.price_settings import PriceSettings as PriceSettings
from gateway.config.price_settings import TierSettings as TierSettings
from gateway.config.provider_settings import HookSettings as HookSettings
from gateway.config.provider_settings import PluginSettings as PluginSettings
from gateway.config.provider_settings import ProviderSettings as ProviderSettings
from gateway.config.public_tables import PublicTables
from gateway.config.secret import Secret
from gateway.config.server_settings import BatchSettings as BatchSettings
from gateway.config.server_settings import BucketSettings as BucketSettings
from gateway.config.server_settings import FileSettings as FileSettings
from gateway.config.server_settings import ServerLimitSettings as ServerLimitSettings
from gateway.config.server_settings import ServerSettings as ServerSettings
from gateway.config.server_settings import WebSocketSettings as WebSocketSettings
from gateway.config.telemetry_settings import LogSettings as LogSettings
from gateway.config.telemetry_settings import MetricsSettings as MetricsSettings
from gateway.config.telemetry_settings import TelemetrySettings as TelemetrySettings
from gateway.config.tls_files import TlsFiles
from gateway.config.toml_reader import SettingsError, TomlReader
from gateway.config.values import (
    Count,
    Duration,
    Factor,
    IsoDate,
    Name,
    PartFactor,
    PositiveAmount,
    Seconds,
    UnixTime,
    duration,
)
from gateway.config.variables import Reference

S = TypeVar("S", bound=Struct)


DEFAULT_GROUP = "default"

UnsupportedParam = Literal[
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stream_format",  # speech: no events
    "stream",  # transcription: no events
]


class StoreSettings(Struct, frozen=True, kw_only=True):
    """[store]: where accounts, keys and balances are kept."""

    url: Reference = ""  # a URL or a reference to one
    password: Reference = ""  # `Settings` has properties with the Secrets
    sentinel_password: Reference = ""
    data_dir: Annotated[str, Meta(min_length=1)] = "var"
    pepper: Reference = ""
    previous_pepper: Reference = ""
    unsafe: bool = False
    timeout: Annotated[float, Meta(ge=0.01, le=60)] = 1.0
    keep_lines: Duration = "48h"
    compact_lines: bool = False


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """[database]: the SQL database with the history."""

    url: Reference = ""  # an address or a reference; `Settings.database_url` is the Secret
    keep: Duration = "7y"
    caller_addresses: Literal["off", "shortened", "whole"] = "shortened"
    keep_addresses: Duration = "30d"


class TargetSettings(Struct, frozen=True, kw_only=True):
    """One entry of a model's `targets`."""

    provider: str
    model: Annotated[str, Meta(max_length=512)] = ""
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    cost: Prices | None = None  # what the operator pays


#: Upstream models whose images are billed differently.
ImageFamily = Literal[
    "gpt-4o", "gpt-4o-mini", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-5.2", "gpt-5.4",
    "gpt-5.4-mini", "gpt-5.4-nano", "o3", "o4-mini", "claude-4", "claude-4.7", "gemini-2.5", "gemini-3",
]  # fmt: skip


class ModelFields(Struct, frozen=True, kw_only=True):
    """The keys of a model that a pattern of models has, too."""

    provider: str = ""
    model: Annotated[str, Meta(max_length=512)] = ""
    fallbacks: tuple[str, ...] = ()
    groups: tuple[str, ...] = (DEFAULT_GROUP,)
    owned_by: str = "system"
    context_window: Count | None = None
    max_output_tokens: Count | None = None
    default_reserve_output: Count = 1024
    free: bool = False
    hold: Literal["strict", "clamp"] = "strict"
    unsupported_params: tuple[UnsupportedParam, ...] = ()
    max_tokens_field: Literal["", "max_tokens", "max_completion_tokens"] = ""
    connect_timeout: Seconds = 5.0
    first_byte_timeout: Seconds = 120.0
    first_token_timeout: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    idle_timeout: Seconds = 120.0
    total_timeout: Seconds = 600.0
    strategy: Literal["weighted", "in_order", "least_latency", "least_busy"] = "weighted"
    affinity: Literal["session", "none"] = "session"
    retries: Annotated[int, Meta(ge=0, le=2)] = 2
    patience: Annotated[float, Meta(ge=0, le=60)] = 3.0
    hedge_after: Annotated[float, Meta(ge=0, le=600)] = 0.0
    continue_cut: Literal["auto", "off", "proved", "any"] | bool = "auto"
    prefill: Literal["auto", "assistant", "prefix", "continue_final_message", "none"] = "auto"
    reasoning: Literal["auto"] | bool = "auto"
    disconnect: Literal["auto", "delivered", "drain", "void"] = "auto"
    token_factor: Annotated[float, Meta(gt=0, le=100)] = 1.0
    vendor_tool_uses: Annotated[int, Meta(ge=1, le=1_000)] = 10
    batch_factor: PartFactor = NANO  # of the price, for lines of batches
    images_like: ImageFamily | Literal[""] = ""
    hooks: tuple[str, ...] = ()


class ModelPattern(ModelFields, frozen=True, kw_only=True):
    """[models."PATTERN"]: how the models are served that a provider lists, or that have a public price."""

    price: Rule | None = None
    markup: Factor = NANO  # of public prices, and of those of the provider's list
    max_price: MaxPriceSettings | None = None
    endpoints: tuple[Endpoint, ...] = ()  # empty: as the list, or else the name of a model says it


#: The keys of a model that follow from its pattern as they are.
PATTERN_KEYS = tuple(field.name for field in structs.fields(ModelFields) if field.name not in {"provider", "model"})


class ModelSettings(ModelFields, frozen=True, kw_only=True):
    """[models."NAME"]: one public model."""

    targets: tuple[TargetSettings, ...] = ()
    aliases: tuple[Name, ...] = ()
    created: UnixTime | None = None
    shutdown_date: IsoDate | None = None
    price: Prices | None = None
    cost: Prices | None = None  # what the operator pays, where no targets are listed
    endpoints: tuple[Endpoint, ...] = ("chat",)

    @property
    def continues(self) -> str:
        """`continue_cut` in the words "off", "proved" and "any"."""
        if isinstance(self.continue_cut, bool):
            return "any" if self.continue_cut else "off"
        if self.continue_cut != "auto":
            return self.continue_cut
        return "proved" if len(self.targets) > 1 or self.fallbacks else "off"

    @property
    def all_targets(self) -> tuple[TargetSettings, ...]:
        """The targets; where none are listed, the one that `provider` and `model` name."""
        if self.targets or not self.provider:
            return self.targets
        return (TargetSettings(provider=self.provider, model=self.model, cost=self.cost),)


class GroupSettings(Struct, frozen=True, kw_only=True):
    """[groups.NAME]: limits of each account in the group, an absent one is no limit; and the factor of its prices."""

    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    price_factor: Factor = NANO
    max_session_cost: PositiveAmount | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """Everything a configuration says."""

    server: ServerSettings = ServerSettings()
    metrics: MetricsSettings = MetricsSettings()
    store: StoreSettings = StoreSettings()
    database: DatabaseSettings = DatabaseSettings()
    console: ConsoleSettings = ConsoleSettings()
    oidc: dict[str, OidcSettings] = {}
    mail: MailSettings = MailSettings()
    notify: NotifySettings = NotifySettings()
    providers: dict[str, ProviderSettings] = {}
    models: dict[str, ModelSettings] = {}
    groups: dict[str, GroupSettings] = {}
    plugins: PluginSettings = PluginSettings()
    hooks: dict[str, HookSettings] = {}
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    batches: BatchSettings = BatchSettings()
    files: FileSettings = FileSettings()

    file: str = ""  # where it came from, for messages; no key of the file
    demo: bool = False  # literal secrets are allowed; no key of the file
    warnings: tuple[str, ...] = ()  # about values that may be a mistake; no key of the file
    forwarded: tuple[str, ...] = ()  # headers of callers that any provider forwards; no key of the file
    origins: Origins | None = None  # of a file that includes others; no key of the file

    def file_of(self, *key: str | int) -> str:
        """The file with the value of a key, for messages."""
        return self.file if self.origins is None else self.origins.file_of(key)

    patterns: dict[str, ModelPattern] = {}  # the models of the file whose names have a `*`
    tables: PublicTables = PublicTables()  # the public prices that the file was read with; no key of the file
    from_patterns: frozenset[str] = frozenset()  # the models that the file does not name itself

    @property
    def is_demo(self) -> bool:
        """Whether these are the settings of `gateway serve --demo` without a file, whose store has invented data."""
        return self.demo and not self.file

    @property
    def discovers(self) -> bool:
        """Whether a provider is asked for its list of models."""
        return any(provider.discover for provider in self.providers.values())

    @property
    def configured(self) -> Settings:
        """The settings with only those models that the file names itself, or by a pattern."""
        if not self.from_patterns:
            return self
        models = {name: model for name, model in self.models.items() if name not in self.from_patterns}
        return structs.replace(self, models=models, from_patterns=frozenset())

    @property
    def folder(self) -> Path:
        """What relative paths in the configuration are relative to."""
        return Path(self.file).parent if self.file else Path()

    @property
    def data_dir(self) -> Path:
        """Absolute path of the data directory."""
        return self._path(self.store.data_dir)

    @property
    def spool_dir(self) -> Path:
        """Absolute path of the folder of uploads."""
        folder = self.server.limits.spool_dir
        return self._path(folder) if folder else self.data_dir / "tmp"

    @property
    def files_dir(self) -> Path:
        """Absolute path of the folder with the files of callers."""
        return self._path(self.files.folder) if self.files.folder else self.data_dir / "files"

    @property
    def console_url(self) -> str:
        """The console's address before the paths of links, without a slash at its end."""
        console = self.console
        host = f"[{console.host}]" if ":" in console.host else console.host
        return console.public_url.rstrip("/") or f"{self.server.scheme}://{host}:{console.port}{console.root_path}"

    @property
    def tls_files(self) -> TlsFiles | None:
        """Where the certificate of the ports is; None without TLS."""
        server = self.server
        if not server.tls_cert:
            return None
        of_callers, of_people = server.tls_client_ca, self.console.tls_client_ca
        return TlsFiles(
            self._path(server.tls_cert),
            self._path(server.tls_key),
            self._path(of_callers) if of_callers else None,
            self._path(of_people) if of_people and self.console.enabled else None,
        )

    def _path(self, text: str) -> Path:
        return (self.folder / Path(text).expanduser()).absolute()

    @property
    def pepper(self) -> Secret | None:
        """The pepper's reference, or None: then it is kept in data_dir."""
        return self._secret(self.store.pepper)

    @property
    def previous_pepper(self) -> Secret | None:
        """The reference of the pepper that is being replaced, or None."""
        return self._secret(self.store.previous_pepper)

    @property
    def store_url(self) -> Secret | None:
        """The reference in `store.url`, or None: then it is the URL itself, or empty."""
        return self._secret(self.store.url) if self.store.url.startswith(("env:", "file:")) else None

    @property
    def store_password(self) -> Secret | None:
        """The reference of the password of the store's servers, or None."""
        return self._secret(self.store.password)

    @property
    def sentinel_password(self) -> Secret | None:
        """The reference of the password of the sentinels, or None."""
        return self._secret(self.store.sentinel_password)

    def _secret(self, reference: str) -> Secret | None:
        return Secret.parse(reference, literals=self.demo, folder=self.folder) if reference else None

    @property
    def database_url(self) -> Secret | None:
        """The database's address, or None: then it is SQLite in data_dir. SecretError if the reference is malformed."""
        if not self.database.url:
            return None
        return Secret.parse(self.database.url, literals=True, folder=self.folder)

    def oidc_secret(self, name: str) -> Secret:
        """The client secret at the identity provider `name`."""
        return Secret.parse(self.oidc[name].client_secret, literals=self.demo, folder=self.folder)

    @property
    def mail_password(self) -> Secret | None:
        """The password's reference, or None: then the mail server is used without signing in."""
        if not self.mail.password:
            return None
        return Secret.parse(self.mail.password, literals=self.demo, folder=self.folder)

    @property
    def webhook_url(self) -> Secret | None:
        """The URL of the webhook, or None: then there is none. SecretError if the reference is malformed."""
        if not self.notify.webhook:
            return None
        return Secret.parse(self.notify.webhook, literals=True, folder=self.folder)

    @property
    def webhook_secrets(self) -> list[Secret]:
        """The secrets that sign what the webhook gets."""
        return [Secret.parse(text, literals=self.demo, folder=self.folder) for text in self.notify.secrets]

    @property
    def keep_lines(self) -> timedelta:
        """How long ledger lines stay in the store."""
        return duration(self.store.keep_lines)

    @property
    def keep_history(self) -> timedelta:
        """How long ledger lines stay in the database."""
        return duration(self.database.keep)

    @property
    def keep_addresses(self) -> timedelta:
        """How long addresses of callers stay in the database."""
        return duration(self.database.keep_addresses)

    def provider_options(self, name: str, kind: type[S], *, credential: int = 0) -> S:
        """The options of provider `name`, with one of its credentials, as its plugin declares them.

        SettingsError for every problem in them.
        """
        reader = TomlReader(self.file, folder=self.folder, literals=self.demo, origins=self.origins)
        provider, key = self.providers[name], ("providers", name)
        own = provider.credentials[credential] if provider.credentials else {}
        return _options(reader, kind, {**provider.options, **own}, key)

    def hook_options(self, name: str, kind: type[S]) -> S:
        """The options of hook `name` as its plugin declares them; SettingsError for every problem in them."""
        reader = TomlReader(self.file, folder=self.folder, literals=self.demo, origins=self.origins)
        return _options(reader, kind, self.hooks[name].options, ("hooks", name))


def _options(reader: TomlReader, kind: type[S], table: dict[str, object], key: tuple[str, str]) -> S:
    options = reader.struct(kind, table, key)
    if options is None:
        raise SettingsError(reader.problems)
    return options


_NO_SECTIONS = frozenset({"file", "demo", "warnings", "forwarded", "origins", "patterns", "from_patterns", "tables"})
SECTIONS = tuple(field.name for field in structs.fields(Settings) if field.name not in _NO_SECTIONS)
