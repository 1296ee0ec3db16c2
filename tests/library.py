"""Models of transformers at random initialisation, with the head they are trained with."""

import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.models.auto import modeling_auto

# In this order: some encoders are decoders, too.
CLASSES = [
    ("seq2seq", AutoModelForSeq2SeqLM, modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
    ("masked", AutoModelForMaskedLM, modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    ("causal", AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
]


def base(config, **arguments):
    """A base model; that of one tower may have no AutoModel."""
    if type(config) in transformers.MODEL_MAPPING:
        return AutoModel.from_config(config, **arguments)
    name = type(config).__name__.removesuffix("Config")
    return getattr(transformers, f"{name}Model")._from_config(config, **arguments)


def with_head(config):
    """A model in evaluation mode, and what its head predicts: seq2seq, masked or causal; none of what has no head."""
    kind, model = next(((kind, model) for kind, model, names in CLASSES if config.model_type in names),
                       (None, AutoModel))
    if config.model_type == "whisper":
        kind, model = "seq2seq", transformers.WhisperForConditionalGeneration
        return model(config).eval(), kind
    if config.model_type == "mllama_text_model":
        # No AutoModel builds the class with a head.
        return transformers.MllamaForCausalLM(config).eval(), "causal"
    if kind is None:
        return base(config).eval(), kind
    model = model.from_config(config).eval()
    # Since 5.0 the library ties the head of a T5 whose config says that it is not.
    if kind == "seq2seq" and getattr(config, "scale_decoder_outputs", True) is False:
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * config.initializer_factor)
    return model, kind
