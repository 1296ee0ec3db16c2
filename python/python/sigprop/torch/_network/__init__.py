"""Stacks as PyTorch modules: the network, the sources of its streams, and a module for every component."""

from ._network import Network
from ._node import Node

__all__ = ["Network", "Node"]
