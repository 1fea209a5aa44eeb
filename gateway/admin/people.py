"""The services over people, made once per process."""

from __future__ import annotations

from functools import cached_property

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import Peppers, peppers_of
from gateway.admin.accounts import AccountAdmin
from gateway.admin.audit_trail import AuditTrail
from gateway.admin.directory import StoreDirectory
from gateway.admin.identities import Identities
from gateway.admin.invitations import Invitations
from gateway.admin.keys import KeyAdmin
from gateway.admin.mail import Mail, SmtpMail
from gateway.admin.member_budgets import MemberBudgets
from gateway.admin.member_keys import MemberKeys
from gateway.admin.memberships import Memberships
from gateway.admin.messages import Messages
from gateway.admin.newcomers import Newcomers
from gateway.admin.oidc.flows import Flows
from gateway.admin.oidc.providers import Providers
from gateway.admin.oidc.sign_in import OidcSignIn
from gateway.admin.outbox import AuditOutbox
from gateway.admin.password_hashes import PasswordHashes
from gateway.admin.personal_data import PersonalData
from gateway.admin.playground_keys import PlaygroundKeys
from gateway.admin.second_factor import SecondFactor
from gateway.admin.secret_box import SecretBox
from gateway.admin.sessions import Sessions
from gateway.admin.sign_in import SignIn
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.sign_in_links import SignInLinks
from gateway.admin.sign_ups import SignUps
from gateway.admin.signup_credits import SignUpCredits
from gateway.admin.tokens import Tokens
from gateway.admin.transactions import Transactions
from gateway.admin.users import Users
from gateway.config.settings import Settings
from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.ledger import Ledger
from gateway.ledger.scripts import Links


class People:
    """Users, memberships, invitations, sessions, tokens, mail and the audit trail of one database and store."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        sql: SqlThread,
        links: Links,
        *,
        mail: Mail | None = None,
        hashes: PasswordHashes | None = None,
        providers: Providers | None = None,
        reading: SqlThread | None = None,  # of long queries
    ) -> None:
        self._providers = providers or Providers(settings)
        self._settings = settings
        self._links = links
        self._base = settings.console.base_url
        self._hashes = hashes or PasswordHashes()
        self.transactions = transactions = Transactions(database, sql)
        self.mail = mail or SmtpMail(settings)
        self.directory = StoreDirectory(links)
        outbox = AuditOutbox(links)
        self.keys = keys = Keys(links, lambda: self._peppers)
        accounts = Accounts(links, Ledger(links, {}))
        self._account_admin = AccountAdmin(accounts, outbox)
        admin = KeyAdmin(accounts, keys, outbox)
        self.member_keys = MemberKeys(transactions, admin, keys, outbox)
        self.member_budgets = MemberBudgets(links, transactions, outbox)
        self.users = Users(transactions, self.member_keys)
        self.memberships = Memberships(transactions, self.directory, self.member_keys)
        self.invitations = Invitations(transactions, self.directory, self._hashes, self._base)
        self.sign_in_links = SignInLinks(transactions, self._base)
        self.sessions = Sessions(transactions)
        self.identities = Identities(transactions)
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
        return SignInLimits(self._links, self.pepper)

    @cached_property
    def tokens(self) -> Tokens:
        """Admin tokens."""
        return Tokens(self.transactions, self.directory, self.pepper)

    @cached_property
    def playground_keys(self) -> PlaygroundKeys:
        """The keys with which the console calls models for users."""
        return PlaygroundKeys(self.pepper, self.keys, self.member_keys)

    @cached_property
    def sign_in(self) -> SignIn:
        """Passwords, links and codes."""
        return SignIn(self.transactions, self._hashes, self._limits, self._box)

    @cached_property
    def oidc(self) -> OidcSignIn:
        """Identity providers."""
        return OidcSignIn(
            self._providers,
            Flows(self._links),
            self.transactions,
            newcomers=self._newcomers,
            memberships=self.memberships,
            directory=self.directory,
            hashes=self._hashes,
            limits=self._limits,
        )

    @cached_property
    def sign_ups(self) -> SignUps:
        """People who sign up by e-mail."""
        return SignUps(
            self.transactions, self._newcomers, self._limits, self._hashes, self.mail, self._settings.console
        )

    @cached_property
    def _newcomers(self) -> Newcomers:
        return Newcomers(
            self.transactions,
            self._account_admin,
            self._limits,
            SignUpCredits(self._links, self._settings.console.signup_credits_per_day),
            self._settings.console,
        )

    @cached_property
    def second_factor(self) -> SecondFactor:
        """One-time codes of an authenticator app."""
        return SecondFactor(self.transactions, self._limits, self._box)

    @cached_property
    def messages(self) -> Messages:
        """E-mails with links."""
        return Messages(self.mail, self.sign_in_links, self._limits)
