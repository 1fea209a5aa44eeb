"""What operators, users and programs may do: the services behind the commands, the admin API and the console.

::

    people = People(database, sql, directory, settings)          # needs SQL
    created = await people.users.create(actor, "ann@example.com", role="operator")

    accounts = AccountAdmin(Accounts(store, ledger), outbox)     # needs the store only
    await accounts.credit(actor, "acme", 5 * NANO)

    reports = Reports(people.transactions)                       # reads only
    report = await reports.report(actor, ReportQuery(since=…, until=…, group_by=["model", "day"]))

Each method takes the `Actor` first, checks what the actor may do and all values, and then writes; a failed call changes
nothing. Each write has an event in the audit trail: in the same transaction in SQL, through `AuditOutbox` in the store.
Errors are `Forbidden`, `NotFound`, `InvalidValue` and the branch `PeopleError`. Modules that load SQLAlchemy are not
imported by those of the store.
"""
