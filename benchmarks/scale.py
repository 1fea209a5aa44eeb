import click


@click.command()
def scale() -> None: ...
