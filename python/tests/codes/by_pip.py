"""Codes that come by pip. Packages are imported where they are used, so that one that is missing hides no other."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import BATCH, BLOCKS, HEADS, TARGET_TOKENS, TOKENS, VOCABULARY, WIDTH, Built, code, ids, images, pip, vectors

TORCH = pip("torch==2.15.0")
TIMM = pip("timm==1.0.31", "torchvision==0.29.2")
TRANSFORMERS = pip("transformers==5.24.0")
X_TRANSFORMERS = pip("x-transformers==2.31.10")
VIT_PYTORCH = pip("vit-pytorch==1.26.14")

# Images of 32 × 32 pixels have 16 patches.
SIZES: dict[str, Any] = {"embed_dim": WIDTH, "depth": BLOCKS, "num_heads": HEADS}
VISION: dict[str, Any] = {"img_size": 32, "patch_size": 8, "num_classes": 10, **SIZES}


@code(TORCH, "Sequential of Linear and ReLU, with torch's own initialisation and random biases")
def torch_mlp() -> Built:
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)).eval(), (torch.randn(32, WIDTH),), {}


@code(TORCH, "BatchNorm between maps, in training, where it uses the moments of the batch")
def torch_mlp_batchnorm() -> Built:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)).train(), (torch.randn(48, WIDTH),), {}


@code(TORCH, "TransformerEncoder, norm first; its layers are deep copies of one layer")
def torch_encoder() -> Built:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, BLOCKS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    return encoder.eval(), (vectors(),), {}


@code(TORCH, "Transformer, encoder and decoder, norm last; Xavier draws every layer anew")
def torch_transformer() -> Built:
    module = nn.Transformer(WIDTH, HEADS, 3, 3, 2 * WIDTH, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(TARGET_TOKENS)
    return module.eval(), (vectors(), vectors(TARGET_TOKENS)), {"tgt_mask": mask, "tgt_is_causal": True}


@code(TIMM, "vision transformer with LayerScale and positions without the class token")
def timm_deit3() -> Built:
    import timm

    return timm.create_model("deit3_small_patch16_224", init_values=0.1, **VISION).eval(), (images(),), {}


@code(TIMM, "two-dimensional rotary positions, SwiGLU with a norm inside, mean of tokens before the head")
def timm_eva02() -> Built:
    import timm

    return timm.create_model("eva02_tiny_patch14_224", **VISION).eval(), (images(),), {}


@code(TIMM, "relative position bias over two dimensions, queries and values with bias, keys without")
def timm_beit() -> Built:
    import timm

    return timm.create_model("beit_base_patch16_224", **VISION).eval(), (images(),), {}


@code(TIMM, "four registers with the class token, no positions of these, LayerScale of 1e-5", held_out=True)
def timm_registers() -> Built:
    import timm

    return timm.create_model("vit_small_patch14_reg4_dinov2", **VISION).eval(), (images(),), {}


@code(TIMM, "SigLIP's image half: no class token, a learned query reads the tokens at the end")
def timm_siglip() -> Built:
    import timm

    return timm.create_model("vit_base_patch16_siglip_224", **VISION).eval(), (images(),), {}


@code(TIMM, "linear maps over tokens")
def timm_mixer() -> Built:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(img_size=32, patch_size=8, num_blocks=BLOCKS, embed_dim=WIDTH, num_classes=10).eval(), (images(),), {}


@code(TIMM, "depthwise convolutions over images, with norms over channels")
def timm_convnext() -> Built:
    import timm

    module = timm.create_model("convnext_atto", depths=(1, 1, 2, 1), dims=(32, 64, 96, 128), num_classes=10)
    return module.eval(), (images(size=64),), {}


@code(pip("torchvision==0.29.2"), "vision transformer around torch.nn.MultiheadAttention; its head is zero", held_out=True)
def torchvision_vit() -> Built:
    from torchvision.models import VisionTransformer

    module = VisionTransformer(32, 8, num_layers=BLOCKS, num_heads=HEADS, hidden_dim=WIDTH, mlp_dim=2 * WIDTH, num_classes=10)
    return module.eval(), (images(),), {}


def _transformer(model: str, config: str, args: tuple[Any, ...] | None = None, **keys: Any) -> Built:
    """A model of transformers from its configuration, without a key-value cache."""
    import transformers

    settings = getattr(transformers, config)(vocab_size=VOCABULARY, pad_token_id=None, bos_token_id=None, eos_token_id=None, **keys)
    settings.use_cache = False
    return getattr(transformers, model)(settings).eval(), (ids(),) if args is None else args, {}


# The keys that most configurations share.
USUAL: dict[str, Any] = {
    "num_hidden_layers": BLOCKS,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": TOKENS,
}


@code(TRANSFORMERS, "transposed linear maps (Conv1D), fused queries, keys and values, tied head")
def hf_gpt2() -> Built:
    return _transformer("GPT2LMHeadModel", "GPT2Config", n_layer=BLOCKS, n_embd=WIDTH, n_head=HEADS, n_positions=TOKENS)


@code(TRANSFORMERS, "norms of queries and keys per head, grouped keys, rotary halves, heads wider than width / heads")
def hf_qwen3() -> Built:
    return _transformer("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=48, **USUAL)


@code(TRANSFORMERS, "norm last, a norm after the sum of three embeddings, a pooler after the stream")
def hf_bert() -> Built:
    return _transformer("BertModel", "BertConfig", **USUAL)


@code(TRANSFORMERS, "encoder and decoder, a relative position table that layers share, no scale of scores, tied head with a factor")
def hf_t5() -> Built:
    module, *_ = _transformer(
        "T5ForConditionalGeneration", "T5Config", num_layers=3, d_model=WIDTH, num_heads=HEADS, d_kv=WIDTH // HEADS, d_ff=2 * WIDTH,
        decoder_start_token_id=0,
    )  # fmt: skip
    return module, (), {"input_ids": ids(), "decoder_input_ids": ids(TARGET_TOKENS)}


@code(TRANSFORMERS, "mixture of experts with top-k routing")
def hf_mixtral() -> Built:
    return _transformer(
        "MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **USUAL
    )


@code(TRANSFORMERS, "ALiBi added by baddbmm, queries, keys and values interleaved by head, a norm after the embedding")
def hf_bloom() -> Built:
    return _transformer("BloomForCausalLM", "BloomConfig", n_layer=BLOCKS, hidden_size=WIDTH, n_head=HEADS)


@code(TRANSFORMERS, "attention and feed-forward network in parallel after one norm, one key for all heads, rotary")
def hf_falcon() -> Built:
    keys = {key: value for key, value in USUAL.items() if key != "intermediate_size"}
    return _transformer("FalconForCausalLM", "FalconConfig", multi_query=True, parallel_attn=True, alibi=False, **keys)


@code(TRANSFORMERS, "soft caps of scores and logits, norms before and after branches, gains 1 + w, windows, scaled embedding")
def hf_gemma2() -> Built:
    return _transformer(
        "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=48, sliding_window=6,
        attn_implementation="eager", **USUAL,
    )  # fmt: skip


@code(TRANSFORMERS, "attention between contents and relative positions (disentangled)")
def hf_deberta() -> Built:
    return _transformer("DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], **USUAL)


@code(TRANSFORMERS, "rotary with two bases, local and global attention, GeGLU, no biases, no norm before the first attention")
def hf_modernbert() -> Built:
    return _transformer("ModernBertModel", "ModernBertConfig", local_attention=8, global_attn_every_n_layers=2, **USUAL)


@code(TRANSFORMERS, "embedding of a smaller width with a map after it, norm last", held_out=True)
def hf_electra() -> Built:
    return _transformer("ElectraModel", "ElectraConfig", embedding_size=WIDTH // 2, **USUAL)


@code(TRANSFORMERS, "positions that are counted by the mask, with an offset of 2, tied head", held_out=True)
def hf_opt() -> Built:
    keys = {key: value for key, value in USUAL.items() if key != "intermediate_size"}
    return _transformer("OPTForCausalLM", "OPTConfig", ffn_dim=2 * WIDTH, word_embed_proj_dim=WIDTH, **keys)


@code(X_TRANSFORMERS, "decoder with rotary, RMSNorm and SwiGLU; einops, autocast regions")
def x_transformers_decoder() -> Built:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=WIDTH, depth=BLOCKS, heads=HEADS, attn_dim_head=32, rotary_pos_emb=True, use_rmsnorm=True, ff_glu=True, ff_swish=True
    )
    return TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=TOKENS, attn_layers=layers).eval(), (ids(),), {}


@code(X_TRANSFORMERS, "encoder with T5's bias, norms around branches, squared ReLU, one key for all heads")
def x_transformers_encoder() -> Built:
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(
        dim=WIDTH, depth=BLOCKS, heads=HEADS, attn_dim_head=32, rel_pos_bias=True, sandwich_norm=True, ff_relu_squared=True,
        attn_one_kv_head=True,
    )  # fmt: skip
    return TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=TOKENS, attn_layers=layers).eval(), (ids(),), {}


@code(X_TRANSFORMERS, "vision transformer around the same layers, mean of tokens before the head", held_out=True)
def x_transformers_vit() -> Built:
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(dim=WIDTH, depth=BLOCKS, heads=HEADS, attn_dim_head=32)
    return ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, attn_layers=layers).eval(), (images(),), {}


# The keys that models of vit-pytorch share.
PATCHES: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 10,
    "dim": WIDTH,
    "heads": HEADS,
    "dim_head": 32,
    "mlp_dim": 2 * WIDTH,
}


@code(VIT_PYTORCH, "vision transformer with patches by einops, norms before and after the embedding, positions of variance 1")
def vit_pytorch_vit() -> Built:
    from vit_pytorch import ViT

    return ViT(depth=BLOCKS, **PATCHES).eval(), (images(),), {}


@code(VIT_PYTORCH, "fixed positions in two dimensions, mean of tokens before the head", held_out=True)
def vit_pytorch_simple() -> Built:
    from vit_pytorch import SimpleViT

    return SimpleViT(depth=BLOCKS, **PATCHES).eval(), (images(),), {}


@code(VIT_PYTORCH, "talking heads, LayerScale, a class token that joins late and attends alone")
def vit_pytorch_cait() -> Built:
    from vit_pytorch.cait import CaiT

    return CaiT(depth=BLOCKS, cls_depth=2, **PATCHES).eval(), (images(),), {}


@code(VIT_PYTORCH, "two attentions in parallel, then two feed-forward networks in parallel", held_out=True)
def vit_pytorch_parallel() -> Built:
    from vit_pytorch.parallel_vit import ViT

    return ViT(depth=BLOCKS, num_parallel_branches=2, **PATCHES).eval(), (images(),), {}


@code(pip("llms-from-scratch==1.0.19"), "a book's GPT: LayerNorm, GELU and the mask by hand")
def rasbt_gpt() -> Built:
    from llms_from_scratch.ch04 import GPTModel

    keys = {"vocab_size": VOCABULARY, "context_length": TOKENS, "emb_dim": WIDTH, "n_heads": HEADS, "n_layers": BLOCKS}
    return GPTModel({**keys, "drop_rate": 0.0, "qkv_bias": False}).eval(), (ids(),), {}


@code(pip("fair-esm==2.0.0"), "protein language model, tokens before sequences, rotary, head with a map and a norm")
def fair_esm2() -> Built:
    from esm.model.esm2 import ESM2

    module = ESM2(num_layers=BLOCKS, embed_dim=WIDTH, attention_heads=HEADS, token_dropout=False)
    # The alphabet has 33 tokens, of which 4 to 23 are the amino acids.
    return module.eval(), (torch.randint(4, 24, (BATCH, TOKENS)),), {}


@code(pip("rtdl-revisiting-models==0.0.2"), "tokens from numbers of a table, ReGLU, no norm in the first layer")
def rtdl_ft_transformer() -> Built:
    from rtdl_revisiting_models import FTTransformer

    module = FTTransformer(
        n_cont_features=TOKENS, cat_cardinalities=[], d_out=2, n_blocks=BLOCKS, d_block=WIDTH, attention_n_heads=HEADS,
        attention_dropout=0.0, ffn_d_hidden_multiplier=2.0, ffn_dropout=0.0, residual_dropout=0.0,
    )  # fmt: skip
    return module.eval(), (torch.randn(BATCH, TOKENS), None), {}


@code(pip("open-clip-torch==3.3.0"), "text half of CLIP: a mask, depth-scaled weights, the last token is read")
def open_clip_text() -> Built:
    from open_clip.transformer import TextTransformer

    module = TextTransformer(TOKENS, VOCABULARY, width=WIDTH, heads=HEADS, layers=BLOCKS, output_dim=WIDTH)
    return module.eval(), (ids(),), {}


@code(pip("open-clip-torch==3.3.0"), "image half of CLIP: a norm before the blocks, the class token is read", held_out=True)
def open_clip_vision() -> Built:
    from open_clip.transformer import VisionTransformer

    module = VisionTransformer(32, 8, width=WIDTH, layers=BLOCKS, heads=HEADS, mlp_ratio=2.0, output_dim=64)
    return module.eval(), (images(),), {}


@code(pip("openai-whisper==20250625"), "speech: convolutions over time, a decoder that reads the encoder, keys without a bias")
def openai_whisper() -> Built:
    from whisper.model import ModelDimensions, Whisper

    frames = 2 * TOKENS
    module = Whisper(ModelDimensions(20, TOKENS, WIDTH, HEADS, 3, VOCABULARY, TARGET_TOKENS, WIDTH, HEADS, 3))
    # The package leaves these as memory is, because it loads them.
    nn.init.normal_(module.decoder.positional_embedding, std=0.02)
    return module.eval(), (torch.randn(BATCH, 20, frames), ids(TARGET_TOKENS)), {}


@code(pip("litgpt==0.5.13"), "Pythia by Lightning: rotary on a quarter of a head, both branches from one signal", held_out=True)
def litgpt_pythia() -> Built:
    from litgpt import GPT, Config

    settings = Config.from_name(
        "pythia-14m", block_size=TOKENS, n_layer=BLOCKS, n_embd=WIDTH, n_head=HEADS, intermediate_size=2 * WIDTH,
        padded_vocab_size=VOCABULARY,
    )  # fmt: skip
    module = GPT(settings)
    module.apply(module._init_weights)
    return module.eval(), (ids(),), {}


@code(pip("torchscale==0.3.0"), "norms inside attention and feed-forward network, weights scaled by depth", held_out=True)
def torchscale_decoder() -> Built:
    from torchscale.architecture.config import DecoderConfig
    from torchscale.architecture.decoder import Decoder

    settings = DecoderConfig(
        decoder_embed_dim=WIDTH, decoder_attention_heads=HEADS, decoder_ffn_embed_dim=2 * WIDTH, decoder_layers=BLOCKS,
        vocab_size=VOCABULARY,
    )  # fmt: skip
    return Decoder(settings, embed_tokens=nn.Embedding(VOCABULARY, WIDTH)).eval(), (ids(),), {}


@code(pip("bert-pytorch==0.0.1a4"), "token, sinusoid and segment; LayerNorm by the sample deviation")
def bert_pytorch() -> Built:
    from bert_pytorch.model import BERT

    module = BERT(VOCABULARY, hidden=WIDTH, n_layers=BLOCKS, attn_heads=HEADS)
    # The id 0 is padding.
    return module.eval(), (torch.randint(1, VOCABULARY, (BATCH, TOKENS)), torch.ones(BATCH, TOKENS, dtype=torch.long)), {}


@code(pip("segment-anything==1.0"), "SAM: windows of tokens, positions read by queries, convolutions at the end", held_out=True)
def segment_anything_encoder() -> Built:
    from segment_anything.modeling import ImageEncoderViT

    module = ImageEncoderViT(
        img_size=32, patch_size=8, embed_dim=WIDTH, depth=BLOCKS, num_heads=HEADS, out_chans=48, use_rel_pos=True,
        window_size=2, global_attn_indexes=(1, 3),
    )  # fmt: skip
    return module.eval(), (images(),), {}


@code(pip("chronos-forecasting==2.3.2"), "series: patches of a normalised series with their mask, then T5", held_out=True)
def chronos_bolt() -> Built:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    forecast = {
        "context_length": 8 * TOKENS, "prediction_length": 16, "input_patch_size": 8, "input_patch_stride": 8,
        "quantiles": [0.1, 0.5, 0.9], "use_reg_token": True,
    }  # fmt: skip
    sizes: dict[str, Any] = {"num_layers": 3, "d_model": WIDTH, "num_heads": HEADS, "d_kv": WIDTH // HEADS, "d_ff": 2 * WIDTH}
    settings = T5Config(**sizes, **{"decoder_start_token_id": 0, "chronos_config": forecast})
    return ChronosBoltModelForForecasting(settings).eval(), (torch.randn(BATCH, 8 * TOKENS),), {}
