"""The player: shows how chunks move, in a schedule or in a run of your own."""

from allranks.player.animation import Animation, animate
from allranks.player.widget import Player, PlayerError

__all__ = ["Animation", "Player", "PlayerError", "animate"]
