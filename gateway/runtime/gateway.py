"""The composition root: builds one `Gateway` object from the settings. Only this module knows every part.

`Gateway.build(settings, store)` makes everything a worker needs; `gateway.application()` is its Tornado application.
Sharp edge: `reload` replaces the catalogue and the router as a whole. Running calls keep the model and price they were
admitted with, and replaced providers are closed later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import Peppers
from gateway.accounts.sealed_text import SealedText
from gateway.accounts.store_claim import prove_pepper
from gateway.admin.configuration_changes import tell_list_prices
from gateway.api.routes import Application
from gateway.catalog import Catalog
from gateway.config.secret_watcher import SecretWatch
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError, SettingsProblem
from gateway.discovery.discovered import Discovered
from gateway.discovery.list_watch import ListWatch
from gateway.errors import GatewayError
from gateway.hooks.call_hooks import CallHooks
from gateway.hooks.foreign_keys import ForeignKeys
from gateway.http_client.upstream import Upstream
from gateway.ids import Ids
from gateway.inference.active_calls import ActiveCalls
from gateway.inference.call_clock import CallClock
from gateway.inference.disconnects import Disconnects
from gateway.inference.idempotency import Idempotency
from gateway.inference.media_fetching import MediaFetching
from gateway.inference.paced_steps import PacedSteps
from gateway.inference.recent_failures import RecentFailures
from gateway.inference.sessions import SessionIds
from gateway.inference.settlement import Settlement
from gateway.inference.sinks import KeepAlive
from gateway.inference.unreadable_prices import UnreadablePrices
from gateway.ledger import Journal, Ledger
from gateway.ledger.caller_addresses import CallerAddresses
from gateway.ledger.import_hints import ImportHints
from gateway.ledger.price_tables import PriceTables
from gateway.ledger.refusal_counts import RefusalCounts
from gateway.log import AccessLog, PluginLog, gateway_log
from gateway.metrics import Metrics
from gateway.plugins.hook_threads import HookThreads
from gateway.plugins.instances import all_instances, build_providers, packages
from gateway.plugins.isolation import CLOSE_WITHIN, end_within
from gateway.plugins.loader import Plugins, load_plugins
from gateway.plugins.provider import Provider
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.circuit_sync import CircuitSync
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.hidden_reasoning import HiddenReasoningTargets
from gateway.routing.model_health import ModelHealth
from gateway.routing.router import Router
from gateway.runtime.descriptors import descriptor_limit, shares
from gateway.runtime.overload import OverloadMonitor
from gateway.runtime.usage_client import UsageClient
from gateway.runtime.watchdog import Watchdog, note_stall
from gateway.store import Store
from gateway.store.greeting import ServerIdentity
from gateway.store.identity import StoreGuard
from gateway.telemetry.tracing import Traces
from gateway.uploads.body_budgets import BodyBudgets

#: Seconds for which a replaced provider is kept for its running calls: the longest time of a call.
RETIRE_AFTER = 3600.0


class Gateway:
    """All parts of one worker."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        plugins: Plugins,
        *,
        pepper: bytes,
        previous_pepper: bytes = b"",
        journal: Journal | None = None,
        machine: str = "",
    ) -> None:
        self.settings = settings
        self.store = store
        self.plugins = plugins
        self.log = PluginLog()
        self.ids = Ids()
        self.metrics = Metrics()
        self.metrics.build_info()
        self.access_log = AccessLog(enabled=settings.log.access)
        self._peppers = Peppers(pepper, previous_pepper)
        self.auth = Authenticator(store, pepper, previous_pepper=previous_pepper, on_found=self._key_found)
        self.sessions = SessionIds(pepper)
        self.sealed_text = SealedText(self._peppers)
        limits = settings.server.limits
        self.idempotency = Idempotency(store, most=limits.max_kept_answers)
        self.bodies = BodyBudgets(
            settings.spool_dir,
            memory=(limits.max_bodies, limits.max_account_bodies),
            disk=(limits.max_spool, limits.max_account_spool),
            files=shares(descriptor_limit()).uploads,
        )
        self.paced_steps = PacedSteps()
        self.media_fetching = MediaFetching(settings)
        self.catalog = Catalog.build(settings)
        self.journal = journal
        self.import_hints = ImportHints(store, with_short=settings.notify.is_set_up)
        self.refusals = RefusalCounts(store)
        self.caller_addresses = CallerAddresses(store, settings.database.caller_addresses, settings.keep_addresses)
        self.unreadable_prices = UnreadablePrices(self.metrics)
        self.ledger = Ledger(
            store,
            self.catalog.groups,
            journal=journal,
            on_shortfall=self.metrics.shortfall,
            on_lines=self.import_hints.add,
            compact_lines=settings.store.compact_lines,
        )
        self.price_tables = PriceTables(store)
        store.on_reconnect = self._reconnected
        if journal is not None:
            journal.store_is_whole = store.whole
        self.upstream = Upstream()
        self.providers: dict[str, dict[int, Provider]] = {}  # by name, then by number of the credential
        self.secrets = SecretWatch(self.renew)
        self._changing = asyncio.Lock()  # one reload, or change of secrets, at a time
        tell = partial(tell_list_prices, store)
        self.lists = ListWatch(
            store, self.metrics, settings, lambda: self.providers, self._use_lists, lock=self._changing, tell=tell
        )
        self.health = CircuitRegistry(self.metrics)
        self.model_health = ModelHealth(self.metrics, self.health)
        self.circuit_sync = CircuitSync(self.health, store, machine=machine)
        self.reasoning = HiddenReasoningTargets()
        self.router = Router(self.catalog, self.providers, health=self.health, reasoning=self.reasoning)
        self.dispatcher = Dispatcher(self.metrics, self.log)
        self.call_hooks = CallHooks(
            plugins,
            self.upstream,
            health=self.health,
            stuck=self.dispatcher.stuck,
            metrics=self.metrics,
            log=self.log,
        )
        self.foreign_keys = ForeignKeys(self.call_hooks, self.auth, Keys(store, lambda: self._peppers))
        self.active_calls = ActiveCalls(self.ledger, store)
        self.clock = CallClock(self, self.active_calls.calls)
        self.disconnects = Disconnects(self.ledger)
        self.usage_history = UsageClient(settings.data_dir)
        self.overload = OverloadMonitor(
            max_lag=limits.max_loop_lag, max_memory=limits.max_memory, running=self.active_calls.calls
        )
        self.watchdog = Watchdog(self.overload, partial(note_stall, self), largest_body=self.active_calls.largest_body)
        self.hooks = HookThreads(plugins, on_lost=self._records_lost)
        self.failures = RecentFailures(store)
        self.settlement = Settlement(self.ledger, self.metrics, self.hooks, self.failures)
        self.traces = Traces(settings.telemetry, on_lost=partial(self.metrics.inc, "gateway_traces_lost", ()))
        self.keep_alive = KeepAlive(commit_after=limits.commit_after, comment_after=limits.keepalive_comment)
        self._retired: list[Provider] = []
        self._proof: asyncio.Task[None] | None = None

    @classmethod
    async def build(
        cls,
        settings: Settings,
        store: Store,
        *,
        pepper: bytes,
        previous_pepper: bytes = b"",
        plugins: Plugins | None = None,
        journal: Journal | None = None,
        machine: str = "",
    ) -> Gateway:
        """A gateway ready to serve; PluginRefused if a `startup` hook raises. The journal is optional.

        `machine`: shared by the workers of one supervisor, which share the failures of upstreams.
        """
        plugins = plugins or load_plugins(settings.plugins)
        gateway = cls(
            settings, store, plugins, pepper=pepper, previous_pepper=previous_pepper, journal=journal, machine=machine
        )
        await gateway.call_hooks.start(settings)
        await gateway._use_providers(settings)
        await gateway._begin_lists()
        gateway.router = await gateway._router(gateway.catalog)
        await gateway.price_tables.publish(gateway.catalog.prices())
        plugins.call_strict("startup", gateway=gateway)
        gateway.import_hints.start()
        gateway.refusals.sender.start()
        gateway.failures.sender.start()
        if gateway.caller_addresses.keeps:
            gateway.caller_addresses.sender.start()
        gateway.active_calls.start()
        gateway.circuit_sync.start()
        gateway.overload.start()
        gateway.watchdog.start()
        gateway.secrets.start()
        gateway.lists.start()
        return gateway

    def application(self) -> Application:
        """The application for an HTTPServer."""
        return Application(self)

    async def reload(self, settings: Settings) -> None:
        """Use new settings, except for sockets, store and plugins; after a SettingsError the old ones stay in use."""
        async with self._changing:
            found = await self.lists.with_lists(settings)
            catalog = await asyncio.to_thread(Catalog.build, found.settings, (self.settings, self.catalog))
            hooks = await self.call_hooks.prepare(settings)
            try:
                await self._use_providers(settings, previous=self.settings)
            except SettingsError:
                await self.call_hooks.drop(hooks)
                raise
            self.call_hooks.use(hooks)
            self._watch_packages()
            await self.price_tables.publish(catalog.prices())  # before the first hold at one of them
            await self.traces.use(settings.telemetry)
            self._use(found.settings, catalog, await self._router(catalog))
            self.lists.take(found)

    async def _begin_lists(self) -> None:
        """Begin with the models of the lists of providers, before the first request."""
        found = await self.lists.begin()
        if found.versions:
            self.catalog = await asyncio.to_thread(Catalog.build, found.settings, (self.settings, self.catalog))
            self.settings = found.settings

    async def _use_lists(self, found: Discovered) -> None:
        """Use the models of the lists of providers from the next request on; running calls keep theirs."""
        async with self._changing:
            if found.file is not self.lists.current.file:
                return  # a reload meanwhile has used the lists
            catalog = await asyncio.to_thread(Catalog.build, found.settings, (self.settings, self.catalog))
            await self.price_tables.publish(catalog.prices())
            router = await self._router(catalog)
            self.settings, self.catalog, self.router = found.settings, catalog, router
            self.model_health.use(catalog, self.providers)
            self.lists.take(found)

    async def _router(self, catalog: Catalog) -> Router:
        """A router over the providers in use, made in pieces: calls go on with the one of before."""
        router = Router(catalog, self.providers, health=self.health, reasoning=self.reasoning, makes_groups=False)
        await router.make_groups()
        return router

    def _use(self, settings: Settings, catalog: Catalog, router: Router) -> None:
        self.settings, self.catalog = settings, catalog
        self.access_log.enabled = settings.log.access
        limits = settings.server.limits
        self.overload.max_lag, self.overload.max_memory = limits.max_loop_lag, limits.max_memory
        self.ledger.use_groups(catalog.groups)
        self.bodies.resize(
            memory=(limits.max_bodies, limits.max_account_bodies),
            disk=(limits.max_spool, limits.max_account_spool),
        )
        self.idempotency.most = limits.max_kept_answers
        self.media_fetching.use(settings)
        self.router = router
        self.model_health.use(catalog, self.providers)
        gateway_log.info("configuration reloaded: %d models", len(catalog.models))

    def _reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """Send again what another server, or a restarted one, may lack."""
        if not now.has_data_of(before):
            self.price_tables.publish_again()
        if self.ledger.recovery is not None:
            self.ledger.recovery.reconnected(before, now)

    def _key_found(self) -> None:
        """The first key that is found on an older store proves the pepper: write its fingerprint."""
        guard = self.store.guard
        if guard is not None and guard.unproved:
            guard.unproved = False
            self._proof = asyncio.get_running_loop().create_task(self._prove_pepper(guard))

    async def _prove_pepper(self, guard: StoreGuard) -> None:
        try:
            await prove_pepper(self.store, self._peppers.fingerprints)
        except GatewayError as error:
            guard.unproved = True  # the next key proves it
            gateway_log.warning("the pepper's fingerprint cannot be written: %s", error.log_text() or error.message)

    async def renew(self, names: set[str]) -> None:
        """Create these providers again, because a file with one of their secrets has changed."""
        gateway_log.info("secrets changed: creating %s again", ", ".join(sorted(names)))
        async with self._changing:
            await self._use_providers(self.settings, previous=self.settings, stale=names)
            self.router = await self._router(self.catalog)

    async def _use_providers(
        self, settings: Settings, *, previous: Settings | None = None, stale: Collection[str] = ()
    ) -> None:
        """Keep the instances whose settings did not change, create the others, retire the removed ones.

        A `stale` provider has only a new secret. If the new one cannot be read, the instance with the old one stays.
        """
        wanted, before = settings.providers, previous.providers if previous else {}
        kept = {
            name: old
            for name, old in self.providers.items()
            if name in wanted and before.get(name) == wanted[name] and name not in stale
        }
        fresh = [name for name in wanted if name not in kept]
        made = await build_providers(fresh, settings, plugins=self.plugins, upstream=self.upstream)
        if not stale and (lost := [name for name in fresh if name in self.providers and name not in made.instances]):
            for provider in all_instances(made.instances):
                await self._close_provider(provider)
            raise SettingsError([_problem(name, made.reason(name), settings) for name in lost])
        renewed = set(made.instances)
        for name in stale:
            if name in fresh and name in self.providers:
                if len(made.instances.get(name, {})) < len(self.providers[name]):
                    gateway_log.warning("provider %s keeps its old secret", name)
                made.instances[name] = dict(sorted({**self.providers[name], **made.instances.get(name, {})}.items()))
        self._replace({**kept, **made.instances})
        self.model_health.use(self.catalog, self.providers)
        self._watch_packages()
        self.secrets.watch(made.files, kept={*kept, *stale})
        self.health.reset(renewed)

    def _watch_packages(self) -> None:
        """Tell the watchdog whose code is whose."""
        hooks = self.call_hooks.instances
        self.watchdog.packages = packages(self.providers, hooks)
        named = {id(one): name for name, them in self.providers.items() for one in them.values()}
        self.watchdog.instances = named | {id(one): name for name, one in hooks.items()}

    def _records_lost(self, plugin: str, records: int) -> None:
        self.metrics.inc("gateway_hook_records_lost", (plugin,), records)

    def _replace(self, providers: dict[str, dict[int, Provider]]) -> None:
        """Use these providers from now on, and retire the others."""
        before, self.providers = self.providers, providers
        stay = set(map(id, all_instances(providers)))
        for provider in all_instances(before):
            if id(provider) not in stay:
                self._retired.append(provider)
                asyncio.get_running_loop().call_later(RETIRE_AFTER, self._release, provider)

    def _release(self, provider: Provider) -> None:
        if provider in self._retired:
            self._retired.remove(provider)
            task = asyncio.ensure_future(self._close_provider(provider))
            task.add_done_callback(lambda _: None)

    async def _close_provider(self, provider: Provider) -> None:
        try:
            await end_within(CLOSE_WITHIN, provider.close())
        except Exception as error:
            # Third-party clean-up may raise anything; the other parts must still be closed.
            self.log.provider_failed(provider.name, error)

    async def close(self) -> None:
        """Write the last settlements and release everything; call it after the last request has ended."""
        await self.active_calls.close()
        self.clock.close()
        self.dispatcher.stuck.close()
        self.watchdog.close()
        self.overload.close()
        await self.secrets.close()
        await self.lists.close()
        await self.circuit_sync.close()
        await self.settlement.drain()
        await self.idempotency.drain()
        self.import_hints.stop()
        await self.refusals.sender.stop()
        await self.failures.sender.stop()
        await self.caller_addresses.sender.stop()
        self.access_log.flush()
        await self.hooks.shutdown(self)
        await self.traces.close()
        for provider in [*all_instances(self.providers), *self._retired]:
            await self._close_provider(provider)
        await self.call_hooks.close()
        await self.upstream.close()
        if self.ledger.recovery is not None:
            await self.ledger.recovery.close()
        await self.price_tables.close()
        if self._proof is not None:
            self._proof.cancel()
            await asyncio.wait([self._proof])
        await self.store.close()
        if self.journal is not None:
            self.journal.close()


def _problem(provider: str, reason: str, settings: Settings) -> SettingsProblem:
    return SettingsProblem(settings.file_of("providers", provider), f"providers.{provider}", reason)
