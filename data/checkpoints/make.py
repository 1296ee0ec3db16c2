"""Writes gpt2-tiny/: python make.py, with torch and transformers."""

import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=3, n_embd=32, n_head=4, n_positions=32, vocab_size=64, bos_token_id=0, eos_token_id=0)
GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(pathlib.Path(__file__).parent / "gpt2-tiny")
