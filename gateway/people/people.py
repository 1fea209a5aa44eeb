"""The services over people, made once per process."""

from __future__ import annotations

from functools import cached_property

from gateway.accounts.accounts import Accounts, StoreDirectory
from gateway.accounts.key_edits import KeyEdits
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import Peppers, peppers_of
from gateway.accounts.store_claim import PepperCheck
from gateway.admin.accounts import AccountAdmin
from gateway.admin.audit_trail import AuditTrail
from gateway.admin.keys import KeyService
from gateway.admin.mail import Mail, SmtpMail
from gateway.admin.mail_tasks import MailTasks
from gateway.admin.outbox import AuditOutbox
from gateway.admin.transactions import Transactions
from gateway.config.settings import Settings
from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.ledger import Ledger
from gateway.people.caused_mail import CausedMail
from gateway.people.identities import Identities
from gateway.people.invitations import Invitations
from gateway.people.member_budgets import MemberBudgets
from gateway.people.member_keys import MemberKeys
from gateway.people.memberships import Memberships
from gateway.people.messages import Messages
from gateway.people.newcomers import Newcomers, SignUpCredits
from gateway.people.oidc.flows import Flows
from gateway.people.oidc.providers import Providers
from gateway.people.oidc.sign_in import OidcSignIn
from gateway.people.password_hashes import PasswordHashes
from gateway.people.personal_data import PersonalData
from gateway.people.playground_keys import PlaygroundKeys
from gateway.people.second_factor import SecondFactor
from gateway.people.secret_box import SecretBox
from gateway.people.sessions import Sessions
from gateway.people.sign_in import SignIn
from gateway.people.sign_in_limits import SignInLimits
from gateway.people.sign_in_links import SignInLinks
from gateway.people.sign_ups import SignUps
from gateway.people.tokens import Tokens
from gateway.people.users import Users
from gateway.store import Store


class People:
    """Users, memberships, invitations, sessions, tokens, mail and the audit trail of one database and store."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        sql: SqlThread,
        store: Store,
        *,
        mail: Mail | None = None,
        mail_tasks: MailTasks | None = None,
        hashes: PasswordHashes | None = None,
        providers: Providers | None = None,
        reading: SqlThread | None = None,  # of long queries
    ) -> None:
        self._providers = providers or Providers(settings)
        self._settings = settings
        self._store = store
        self._base = settings.console_url
        self._hashes = hashes or PasswordHashes()
        self.transactions = transactions = Transactions(database, sql)
        self.mail = mail or SmtpMail(settings)
        self._mail_tasks = mail_tasks or MailTasks()
        self.directory = StoreDirectory(store)
        outbox = AuditOutbox(store)
        self.keys = keys = Keys(store, lambda: self._peppers)
        accounts = Accounts(store, Ledger(store, {}))
        self._account_admin = AccountAdmin(accounts, outbox)
        self._key_service = KeyService(
            accounts, keys, KeyEdits(store, keys), outbox, PepperCheck(store, lambda: self._peppers)
        )
        self.member_keys = MemberKeys(transactions, self._key_service, keys, outbox)
        self.member_budgets = MemberBudgets(store, transactions, outbox)
        self.users = Users(transactions, self.member_keys)
        self.memberships = Memberships(transactions, self.directory, self.member_keys)
        self.invitations = Invitations(
            transactions, self.directory, self._hashes, self._base, self.member_keys, lambda: self._limits
        )
        self.sign_in_links = SignInLinks(transactions, self._base)
        self.sessions = Sessions(transactions)
        self.identities = Identities(transactions, self.member_keys)
        self.personal_data = PersonalData(transactions, self.member_keys, Transactions(database, reading or sql))
        self.audit_trail = AuditTrail(transactions)

    def close(self) -> None:
        """End the threads of the password hashes; the database is the caller's."""
        self._hashes.close()

    @cached_property
    def pepper(self) -> bytes:
        """The pepper of new keys and tokens."""
        return self._peppers.current

    @cached_property
    def _peppers(self) -> Peppers:
        return peppers_of(self._settings)

    @cached_property
    def _box(self) -> SecretBox:
        return SecretBox(self._peppers)

    @cached_property
    def _limits(self) -> SignInLimits:
        return SignInLimits(self._store, self.pepper)

    @cached_property
    def _caused_mail(self) -> CausedMail:
        return CausedMail(self.mail, self._limits.counts)

    @cached_property
    def tokens(self) -> Tokens:
        """Admin tokens."""
        return Tokens(self.transactions, self.directory, self._peppers)

    @cached_property
    def playground_keys(self) -> PlaygroundKeys:
        """The keys with which the console calls models for users."""
        return PlaygroundKeys(self.pepper, self.keys, self.member_keys, self._key_service)

    @cached_property
    def sign_in(self) -> SignIn:
        """Passwords, links and codes."""
        return SignIn(self.transactions, self._hashes, self._limits, self._box, self.member_keys, self.memberships)

    @cached_property
    def oidc(self) -> OidcSignIn:
        """Identity providers."""
        return OidcSignIn(
            self._providers,
            Flows(self._store),
            self.transactions,
            newcomers=self.newcomers,
            memberships=self.memberships,
            invitations=self.invitations,
            directory=self.directory,
            hashes=self._hashes,
            limits=self._limits,
        )

    @cached_property
    def sign_ups(self) -> SignUps:
        """People who sign up by e-mail."""
        return SignUps(
            self.transactions,
            self.newcomers,
            self._limits,
            self._hashes,
            self._caused_mail,
            self._mail_tasks,
            self._settings,
        )

    @cached_property
    def newcomers(self) -> Newcomers:
        """People who sign up by themselves, and the accounts that they get."""
        return Newcomers(
            self.transactions,
            self._account_admin,
            self._limits,
            SignUpCredits(self._store, self._settings.console.signup_credits_per_day),
            self._settings.console,
        )

    @cached_property
    def second_factor(self) -> SecondFactor:
        """One-time codes of an authenticator app."""
        return SecondFactor(self.transactions, self._limits, self._box)

    @cached_property
    def messages(self) -> Messages:
        """E-mails with links."""
        return Messages(
            self._caused_mail, self._mail_tasks, self.sign_in_links, self._limits, self.invitations, self.sign_in
        )
