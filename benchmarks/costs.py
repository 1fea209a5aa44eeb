import click


@click.command()
def costs() -> None: ...
