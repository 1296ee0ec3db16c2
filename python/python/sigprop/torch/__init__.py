"""Live PyTorch modules: initialise their parameters, measure their signals and gradients, inspect their weights.

>>> import torch
>>> from transformers import GPT2Config, GPT2Model
>>> import sigprop, sigprop.torch
>>> config = GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=16)
>>> model = GPT2Model(config).eval()
>>> sigprop.torch.apply_(model, "xavier").unmatched
[]
>>> observed = sigprop.torch.probe(model, torch.randint(128, (16, 16)))
>>> validation = sigprop.predict(config, scheme="xavier", seq_len=16, uniform=True).against(observed)
>>> validation.r2 > 0.9
True
"""

from ._apply import Applied, apply_, audit
from ._build import build
from ._live import compare, init_, phase, predict, recommend
from ._network import Network
from ._observed import Observed
from ._probe import Probe, probe
from ._structure import plan
from ._trace import TraceError, Traced, trace

__all__ = [
    "Applied",
    "Network",
    "Observed",
    "Probe",
    "TraceError",
    "Traced",
    "apply_",
    "audit",
    "build",
    "compare",
    "init_",
    "phase",
    "plan",
    "predict",
    "probe",
    "recommend",
    "trace",
]
