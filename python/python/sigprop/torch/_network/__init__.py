"""Stacks as modules of PyTorch: the network, where its streams start, and a module for every component."""

from ._network import Network
from ._node import Node

__all__ = ["Network", "Node"]
