"""The player: see the chunks move, from a schedule or from a run of your own."""

from allranks.player.animation import Animation, animate
from allranks.player.widget import Player, PlayerError

__all__ = ["Animation", "Player", "PlayerError", "animate"]
