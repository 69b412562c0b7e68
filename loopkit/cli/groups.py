"""A group of commands that suggests the nearest name for a misspelt one."""

from __future__ import annotations

import click


class SuggestingGroup(click.Group):
    """A group of commands that suggests the nearest name for a misspelt one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from loopkit.registry.catalog import did_you_mean

            names = self.list_commands(ctx)
            raise click.UsageError(
                f"no command is called '{args[0]}'; {did_you_mean(args[0], names)}commands: {', '.join(names)}", ctx
            )
        return super().resolve_command(ctx, args)
