"""Programs out of public packages: each case builds a model and inputs from one seed. The same file runs with PyTorch and with Taper."""

CASES = {}  # package -> [(name, build)]; build(torch) -> (module or function, args, kwargs)


def case(package, name):
    def keep(build):
        CASES.setdefault(package, []).append((name, build))
        return build
    return keep


# --- transformers ---------------------------------------------------------------------------------------------------
TINY = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, max_position_embeddings=64)
CAUSAL = {  # what a configuration needs beside TINY
    "Llama": dict(num_key_value_heads=2), "Mistral": dict(num_key_value_heads=2), "Qwen2": dict(num_key_value_heads=2),
    "Qwen3": dict(num_key_value_heads=2, head_dim=8), "Phi": {}, "Gemma": dict(num_key_value_heads=4, head_dim=8), "GPTNeoX": {},
    "StableLm": dict(num_key_value_heads=4), "Olmo": {}, "Cohere": dict(num_key_value_heads=2), "Starcoder2": dict(num_key_value_heads=2),
    "Glm": dict(num_key_value_heads=2, head_dim=8), "Gemma2": dict(num_key_value_heads=2, head_dim=8), "Olmo2": dict(num_key_value_heads=2),
    "Granite": dict(num_key_value_heads=2), "Phi3": dict(num_key_value_heads=2), "Nemotron": dict(num_key_value_heads=2),
    "Persimmon": {}, "Helium": dict(num_key_value_heads=2, head_dim=8), "Ernie4_5": dict(num_key_value_heads=2, head_dim=8),
    "SmolLM3": dict(num_key_value_heads=2), "Qwen2Moe": dict(num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                                                             shared_expert_intermediate_size=16),
}
MASKED = {
    "Bert": {}, "Roberta": {}, "Electra": {}, "MPNet": {}, "DebertaV2": {}, "Camembert": {}, "XLMRoberta": {}, "Deberta": {}, "RoFormer": {}, "Ernie": {},
    "MobileBert": dict(intra_bottleneck_size=32, embedding_size=32), "ConvBert": dict(embedding_size=32), "Esm": dict(mask_token_id=1),
    "Albert": dict(embedding_size=16), "ModernBert": dict(cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2),
}


def _language(kind, name):
    def build(torch):
        import transformers
        more = CAUSAL[name] if kind == "causal" else MASKED[name]
        cfg = getattr(transformers, name + "Config")(**{**TINY, **more}, pad_token_id=0)
        m = getattr(transformers, name + ("ForCausalLM" if kind == "causal" else "ForMaskedLM"))(cfg)
        x = torch.randint(1, 99, (2, 7))
        return m, (), {"input_ids": x, "labels": x}
    return build


for _n in CAUSAL:
    case("transformers", _n + "ForCausalLM")(_language("causal", _n))
for _n in MASKED:
    case("transformers", _n + "ForMaskedLM")(_language("masked", _n))


@case("transformers", "GPT2LMHeadModel")
def _(torch):
    import transformers as t
    m = t.GPT2LMHeadModel(t.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2))
    x = torch.randint(1, 99, (2, 7))
    return m, (), {"input_ids": x, "labels": x}


@case("transformers", "T5ForConditionalGeneration")
def _(torch):
    import transformers as t
    m = t.T5ForConditionalGeneration(t.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0))
    x = torch.randint(1, 99, (2, 7))
    return m, (), {"input_ids": x, "labels": x}


@case("transformers", "BartForConditionalGeneration")
def _(torch):
    import transformers as t
    m = t.BartForConditionalGeneration(t.BartConfig(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                                    decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=64))
    x = torch.randint(1, 99, (2, 7))
    return m, (), {"input_ids": x, "labels": x}


@case("transformers", "ViTForImageClassification")
def _(torch):
    import transformers as t
    m = t.ViTForImageClassification(t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=16, patch_size=4))
    return m, (), {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}


@case("transformers", "CLIPModel")
def _(torch):
    import transformers as t
    text = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, max_position_embeddings=64)
    vision = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=16, patch_size=4)
    m = t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    return m, (), {"input_ids": torch.randint(1, 99, (2, 7)), "pixel_values": torch.randn(2, 3, 16, 16), "return_loss": True}


@case("transformers", "Wav2Vec2Model")
def _(torch):
    import transformers as t
    m = t.Wav2Vec2Model(t.Wav2Vec2Config(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_dim=(16, 16),
                                         conv_stride=(4, 4), conv_kernel=(8, 8), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, mask_time_prob=0.0,
                                         layerdrop=0.0))
    return m, (torch.randn(2, 400),), {}


@case("transformers", "MixtralForCausalLM")
def _(torch):
    import transformers as t
    m = t.MixtralForCausalLM(t.MixtralConfig(**{**TINY, "intermediate_size": 64}, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2))
    x = torch.randint(1, 99, (2, 7))
    return m, (), {"input_ids": x, "labels": x}


# --- transformers with names of their own for sizes -----------------------------------------------------------------------
PICTURE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=32, patch_size=8)
SEQ2SEQ = dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37,
               decoder_ffn_dim=37, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
OTHERS = {  # model -> (configuration, its settings, what it is called with)
    "OPTForCausalLM": ("OPTConfig", dict(vocab_size=99, hidden_size=32, word_embed_proj_dim=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=37,
                                         max_position_embeddings=64), "words"),
    "BloomForCausalLM": ("BloomConfig", dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4), "words"),
    "FalconForCausalLM": ("FalconConfig", dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4), "words"),
    "GPTJForCausalLM": ("GPTJConfig", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4), "words"),
    "CodeGenForCausalLM": ("CodeGenConfig", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4), "words"),
    "GPTBigCodeForCausalLM": ("GPTBigCodeConfig", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64), "words"),
    "GPTNeoForCausalLM": ("GPTNeoConfig", dict(vocab_size=99, hidden_size=32, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4,
                                               max_position_embeddings=64), "words"),
    "MptForCausalLM": ("MptConfig", dict(vocab_size=99, d_model=32, n_layers=2, n_heads=4, max_seq_len=64), "words"),
    "MambaForCausalLM": ("MambaConfig", dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=4), "words"),
    "DistilBertForMaskedLM": ("DistilBertConfig", dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64), "words"),
    "XLNetLMHeadModel": ("XLNetConfig", dict(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=37), "words"),
    "FNetForMaskedLM": ("FNetConfig", TINY, "words"),
    "LongformerForMaskedLM": ("LongformerConfig", {**TINY, "attention_window": 4}, "words"),
    "Qwen3MoeForCausalLM": ("Qwen3MoeConfig", dict(**TINY, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
                            "words"),
    "Cohere2ForCausalLM": ("Cohere2Config", dict(**TINY, num_key_value_heads=2), "words"),
    "Gemma3ForCausalLM": ("Gemma3TextConfig", dict(**TINY, num_key_value_heads=2, head_dim=8), "words"),
    "PegasusForConditionalGeneration": ("PegasusConfig", SEQ2SEQ, "words"),
    "MarianMTModel": ("MarianConfig", SEQ2SEQ, "words"),
    "MBartForConditionalGeneration": ("MBartConfig", SEQ2SEQ, "words"),
    "M2M100ForConditionalGeneration": ("M2M100Config", SEQ2SEQ, "words"),
    "WhisperForConditionalGeneration": ("WhisperConfig", dict(SEQ2SEQ, num_mel_bins=8, max_source_positions=16, max_target_positions=32,
                                                              suppress_tokens=None, begin_suppress_tokens=None), "sound"),
    "DeiTForImageClassification": ("DeiTConfig", PICTURE, "picture"),
    "BeitForImageClassification": ("BeitConfig", PICTURE, "picture"),
    "Dinov2ForImageClassification": ("Dinov2Config", PICTURE, "picture"),
    "SiglipVisionModel": ("SiglipVisionConfig", PICTURE, "pixels"),
    "ViTMAEForPreTraining": ("ViTMAEConfig", dict(PICTURE, decoder_hidden_size=16, decoder_num_hidden_layers=1, decoder_num_attention_heads=2,
                                                  decoder_intermediate_size=20), "masked"),
    "SwinForImageClassification": ("SwinConfig", dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 4], window_size=4), "picture"),
    "SegformerForImageClassification": ("SegformerConfig", dict(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 16], num_attention_heads=[1, 2, 2, 2],
                                                                decoder_hidden_size=16), "picture"),
    "ConvNextForImageClassification": ("ConvNextConfig", dict(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 16]), "picture"),
    "ResNetForImageClassification": ("ResNetConfig", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"), "picture"),
    "MobileViTForImageClassification": ("MobileViTConfig", dict(hidden_sizes=[16, 16, 16], neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32], num_attention_heads=2,
                                                                image_size=32), "picture"),
    "HubertModel": ("HubertConfig", dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_dim=(16, 16),
                                         conv_stride=(4, 4), conv_kernel=(8, 8), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
                                         mask_time_prob=0.0, layerdrop=0.0), "wave"),
}


def _other(name):
    def build(torch):
        import transformers
        config, settings, kind = OTHERS[name]
        m = getattr(transformers, name)(getattr(transformers, config)(**settings))
        x = torch.randint(1, 99, (2, 8))
        given = {"words": {"input_ids": x, "labels": x}, "picture": {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])},
                 "pixels": {"pixel_values": torch.randn(2, 3, 32, 32)},
                 "masked": {"pixel_values": torch.randn(2, 3, 32, 32), "noise": torch.rand(2, 16)}, "sound": {"input_features": torch.randn(2, 8, 32), "labels": x},
                 "wave": {"input_values": torch.randn(2, 400)}}[kind]
        return m, (), given
    return build


for _n in OTHERS:
    case("transformers", _n)(_other(_n))


# --- whole uses of transformers: from_pretrained, generate, Trainer -----------------------------------------------------
def _tiny_llama(torch):
    import transformers as t
    return t.LlamaForCausalLM(t.LlamaConfig(**TINY, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2))


@case("transformers", "from_pretrained of a saved model")
def _(torch):
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        _tiny_llama(torch).save_pretrained(d)
        m = type(_tiny_llama(torch)).from_pretrained(d)
    return m, (), {"input_ids": torch.randint(1, 99, (2, 7))}


for _kind, _how in (("greedy", {}), ("sampling", dict(do_sample=True, top_k=20, temperature=0.8)), ("beams", dict(num_beams=3))):
    @case("transformers", f"generate, {_kind}")
    def _(torch, how=_how):
        m = _tiny_llama(torch).eval()
        return (lambda x: m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=8, **how).float()), (torch.randint(3, 99, (2, 5)),), {}


@case("transformers", "generate, T5")
def _(torch):
    import transformers as t
    m = t.T5ForConditionalGeneration(t.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0)).eval()
    return (lambda x: m.generate(x, max_new_tokens=6).float()), (torch.randint(3, 99, (2, 5)),), {}


@case("transformers", "Trainer")
def _(torch):
    import tempfile
    import transformers as t
    data = [{"input_ids": torch.randint(1, 99, (7,)), "labels": torch.randint(1, 99, (7,))} for _ in range(12)]

    def run(seed):
        t.set_seed(3)
        m = _tiny_llama(torch)
        with tempfile.TemporaryDirectory() as d:
            args = t.TrainingArguments(output_dir=d, max_steps=4, per_device_train_batch_size=3, report_to=[], use_cpu=True, logging_steps=1,
                                       save_strategy="no", disable_tqdm=True, learning_rate=1e-3)
            trainer = t.Trainer(model=m, args=args, train_dataset=data)
            trainer.train()
        return torch.tensor([r["loss"] for r in trainer.state.log_history if "loss" in r]), [p.detach() for p in m.parameters()]
    return run, (3,), {}


# --- others ---------------------------------------------------------------------------------------------------------
@case("einops", "patch embedding")
def _(torch):
    from einops import reduce, repeat
    from einops.layers.torch import Rearrange

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.lin = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), torch.nn.Linear(48, 16)
            self.token = torch.nn.Parameter(torch.randn(1, 1, 16))

        def forward(self, x):
            y = self.lin(self.cut(x))
            y = torch.cat([repeat(self.token, "() n d -> b n d", b=x.shape[0]), y], 1)
            return reduce(y, "b n d -> b d", "mean")
    return M(), (torch.randn(2, 3, 8, 8),), {}


@case("einx", "einx.sum and rearrange")
def _(torch):
    import einx
    w = torch.randn(4, 5, requires_grad=True)
    return (lambda x: einx.sum("a [b]", einx.multiply("a b, a b", x, w))), (torch.randn(4, 5),), {}


@case("timm", "vit_tiny_patch16_224")
def _(torch):
    import timm
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=10), (torch.randn(2, 3, 32, 32),), {}


TIMM = {  # model -> what create_model gets beside the number of classes; the size of the picture
    "resnet10t": {}, "convnext_atto": {}, "mobilenetv3_small_050": {}, "efficientnet_lite0": {}, "regnetx_002": {}, "densenet121": dict(block_config=(2, 2), growth_rate=8),
    "ghostnet_050": {}, "mobilenetv2_035": {}, "repvgg_a0": {}, "hardcorenas_a": {}, "mnasnet_small": {}, "resnext26ts": {}, "seresnext26t_32x4d": {}, "lcnet_035": {},
    "edgenext_xx_small": {}, "mobilevit_xxs": {}, "xcit_nano_12_p16_224": {}, "mixer_s32_224": dict(img_size=64), "deit_tiny_patch16_224": dict(img_size=64, depth=2),
    "poolformer_s12": {}, "vgg11": dict(drop_rate=0.0), "maxvit_rmlp_pico_rw_256": dict(img_size=64), "coatnet_pico_rw_224": dict(img_size=64),
    "levit_128s": dict(img_size=64), "fastvit_t8": {}, "repvit_m0_9": {},
}


def _picture(name):
    def build(torch):
        import timm
        return timm.create_model(name, num_classes=10, **TIMM[name]), (torch.randn(2, 3, 64, 64),), {}
    return build


for _n in TIMM:
    case("timm", _n)(_picture(_n))


@case("timm", "swin_tiny_patch4_window7_224")
def _(torch):
    import timm
    m = timm.create_model("swin_tiny_patch4_window7_224", img_size=56, depths=(1, 1, 1, 1), embed_dim=24, num_classes=10)
    return m, (torch.randn(1, 3, 56, 56),), {}


@case("diffusers", "UNet2DModel")
def _(torch):
    from diffusers import UNet2DModel
    m = UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return m, (torch.randn(2, 3, 16, 16), torch.tensor([1, 7])), {}


@case("diffusers", "AutoencoderKL")
def _(torch):
    from diffusers import AutoencoderKL
    m = AutoencoderKL(in_channels=3, out_channels=3, block_out_channels=(32,), down_block_types=("DownEncoderBlock2D",), up_block_types=("UpDecoderBlock2D",),
                      latent_channels=4, norm_num_groups=8)
    return m, (torch.randn(1, 3, 16, 16),), {}


@case("diffusers", "DDPMScheduler")
def _(torch):
    from diffusers import DDPMScheduler
    s = DDPMScheduler(num_train_timesteps=50)
    return (lambda x, n: s.add_noise(x, n, torch.tensor([3, 30]))), (torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)), {}


@case("diffusers", "UNet2DConditionModel")
def _(torch):
    from diffusers import UNet2DConditionModel
    m = UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8,
                             down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16,
                             attention_head_dim=8)
    return m, (torch.randn(2, 4, 16, 16), torch.tensor([1, 7]), torch.randn(2, 5, 16)), {}


@case("diffusers", "DiTTransformer2DModel")
def _(torch):
    from diffusers import DiTTransformer2DModel
    m = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, num_layers=2, sample_size=8, patch_size=2,
                              num_embeds_ada_norm=10, norm_num_groups=4)
    return m, (torch.randn(2, 4, 8, 8),), {"timestep": torch.tensor([1, 7]), "class_labels": torch.tensor([0, 1])}


@case("peft", "LoRA on BERT")
def _(torch):
    import transformers as t
    from peft import LoraConfig, get_peft_model
    m = get_peft_model(t.BertForMaskedLM(t.BertConfig(**TINY)), LoraConfig(r=4, target_modules=["query", "value"], lora_dropout=0.0))
    x = torch.randint(1, 99, (2, 7))
    return m, (), {"input_ids": x, "labels": x}


@case("torchmetrics", "accuracy, F1, AUROC")
def _(torch):
    import torchmetrics as tm
    a, f, r = tm.Accuracy(task="multiclass", num_classes=4), tm.F1Score(task="multiclass", num_classes=4, average="macro"), tm.AUROC(task="multiclass", num_classes=4)
    y = torch.randint(0, 4, (40,))
    return (lambda p: torch.stack([a(p, y), f(p, y), r(p, y)])), (torch.randn(40, 4).softmax(-1),), {}


@case("accelerate", "Accelerator.prepare, a step")
def _(torch):
    from accelerate import Accelerator
    m = torch.nn.Linear(4, 3)
    acc = Accelerator(cpu=True)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    m, opt = acc.prepare(m, opt)

    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        acc.backward(loss)
        opt.step()
        return torch.cat([p.detach().flatten() for p in m.parameters()])
    return step, (torch.randn(5, 4),), {}


@case("lightning", "Trainer.fit")
def _(torch):
    import logging
    import lightning as L
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class M(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(4, 1)

        def training_step(self, batch, i):
            x, y = batch
            return torch.nn.functional.mse_loss(self.lin(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def run(x, y):
        torch.manual_seed(0)
        m = M()
        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
        L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(m, data)
        return torch.cat([p.detach().flatten() for p in m.parameters()])
    return run, (torch.randn(20, 4), torch.randn(20, 1)), {}


@case("x-transformers", "TransformerWrapper")
def _(torch):
    from x_transformers import Decoder, TransformerWrapper
    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True)), (torch.randint(0, 64, (2, 16)),), {}


@case("vit-pytorch", "SimpleViT")
def _(torch):
    from vit_pytorch.simple_vit import SimpleViT
    return SimpleViT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=2, heads=4, mlp_dim=64), (torch.randn(2, 3, 32, 32),), {}


@case("vit-pytorch", "CvT")
def _(torch):
    from vit_pytorch.cvt import CvT
    return CvT(num_classes=10, s1_emb_dim=8, s1_heads=1, s2_emb_dim=16, s2_heads=2, s2_depth=1, s3_emb_dim=16, s3_heads=2, s3_depth=1), (torch.randn(2, 3, 32, 32),), {}


@case("vit-pytorch", "CaiT")
def _(torch):
    from vit_pytorch.cait import CaiT
    return CaiT(image_size=32, patch_size=8, num_classes=10, dim=32, depth=1, cls_depth=1, heads=2, mlp_dim=32), (torch.randn(2, 3, 32, 32),), {}


@case("x-transformers", "XTransformer")
def _(torch):
    from x_transformers import XTransformer
    m = XTransformer(dim=32, enc_num_tokens=32, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=32, dec_depth=1, dec_heads=2, dec_max_seq_len=16)
    return m, (torch.randint(1, 32, (2, 16)), torch.randint(1, 32, (2, 16))), {}


@case("kornia", "gaussian blur and sobel")
def _(torch):
    import kornia
    return (lambda x: kornia.filters.sobel(kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)))), (torch.rand(1, 3, 8, 8),), {}


@case("gpytorch", "ExactGP log likelihood")
def _(torch):
    import gpytorch
    x = torch.linspace(0, 1, 10)
    y = torch.sin(x * 6)

    class GP(gpytorch.models.ExactGP):
        def __init__(self, x, y, lik):
            super().__init__(x, y, lik)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    lik = gpytorch.likelihoods.GaussianLikelihood()
    m = GP(x, y, lik)
    m.train()
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(lik, m)
    return (lambda a: -mll(m(a), y)), (x,), {}


@case("pyro", "SVI of a normal")
def _(torch):
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    data = torch.randn(10) + 3

    def model(d):
        mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0), torch.tensor(10.0)))
        with pyro.plate("d", len(d)):
            pyro.sample("x", dist.Normal(mu, torch.tensor(1.0)), obs=d)

    def guide(d):
        loc = pyro.param("loc", torch.tensor(0.0))
        scale = pyro.param("scale", torch.tensor(1.0), constraint=dist.constraints.positive)
        pyro.sample("mu", dist.Normal(loc, scale))

    def run(d):
        pyro.clear_param_store()
        pyro.set_rng_seed(0)
        svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
        return torch.tensor([svi.step(d) for _ in range(5)] + [pyro.param("loc").item(), pyro.param("scale").item()])
    return run, (data,), {}


@case("torch_geometric", "GCN")
def _(torch):
    from torch_geometric.nn import GCNConv

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = GCNConv(4, 8), GCNConv(8, 3)

        def forward(self, x, e):
            return self.b(self.a(x, e).relu(), e)
    return M(), (torch.randn(5, 4), torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]])), {}


@case("torch_geometric", "convolutions over sparse adjacencies")
def _(torch):
    from torch_geometric.nn import GCNConv, GraphConv, SAGEConv
    from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor
    edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    layers = [kind(4, 3) for kind in (GCNConv, SAGEConv, GraphConv)]

    def run(x):
        out = []
        for make in (to_torch_coo_tensor, to_torch_csc_tensor):
            for layer in layers:
                w = x.clone().requires_grad_()
                y = layer(w, make(edges, size=(4, 4)).t())
                out += [y, *torch.autograd.grad((y ** 2).sum(), [w, *layer.parameters()])]
        return out
    return run, (torch.randn(4, 4),), {}


@case("torchdiffeq", "odeint dopri5")
def _(torch):
    from torchdiffeq import odeint

    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.f = torch.nn.Linear(3, 3)

        def forward(self, y0):
            return odeint(lambda t, y: torch.tanh(self.f(y)), y0, torch.linspace(0, 1, 4), method="dopri5")
    return M(), (torch.randn(2, 3),), {}


@case("captum", "IntegratedGradients")
def _(torch):
    from captum.attr import IntegratedGradients
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    ig = IntegratedGradients(m)
    return (lambda x: ig.attribute(x, target=1, n_steps=10)), (torch.randn(3, 4, requires_grad=True),), {}


@case("safetensors", "save and load")
def _(torch):
    import os
    import tempfile
    from safetensors.torch import load_file, save_file

    def trip(x):
        with tempfile.TemporaryDirectory() as d:
            save_file({"x": x, "h": x.half(), "i": x.long()}, os.path.join(d, "f.safetensors"))
            r = load_file(os.path.join(d, "f.safetensors"))
        return torch.cat([r["x"].flatten(), r["h"].float().flatten(), r["i"].float().flatten()])
    return trip, (torch.randn(3, 4),), {}


# --- vision and tables ----------------------------------------------------------------------------------------------
def _torchvision(name, kw):
    def build(torch):
        import torchvision
        return getattr(torchvision.models, name)(weights=None, **kw), (torch.randn(2, 3, 64, 64),), {}
    return build


for _name, _kw in (("resnet18", {}), ("mobilenet_v3_small", {}), ("efficientnet_b0", {}), ("swin_t", {}), ("convnext_tiny", {}), ("squeezenet1_0", {}),
                   ("vit_b_32", dict(image_size=64)), ("mnasnet0_5", {}), ("shufflenet_v2_x0_5", {})):
    case("torchvision", _name)(_torchvision(_name, _kw))


@case("segmentation_models_pytorch", "FPN")
def _(torch):
    import segmentation_models_pytorch as smp
    return smp.FPN(encoder_name="resnet18", encoder_weights=None, classes=2), (torch.randn(2, 3, 64, 64),), {}


@case("open_clip_torch", "CLIP")
def _(torch):
    import open_clip
    vision = dict(layers=2, width=32, head_width=16, patch_size=16, image_size=32)
    text = dict(context_length=8, vocab_size=50, width=32, heads=2, layers=2)
    m = open_clip.model.CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text)
    return m, (torch.randn(2, 3, 32, 32), torch.randint(0, 50, (2, 8))), {}


@case("monai", "UNet")
def _(torch):
    from monai.networks.nets import UNet
    return UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1), (torch.randn(2, 1, 32, 32),), {}


@case("monai", "SwinUNETR")
def _(torch):
    from monai.networks.nets import SwinUNETR
    return SwinUNETR(in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2)), (torch.randn(1, 1, 64, 64),), {}


@case("monai", "UNETR")
def _(torch):
    from monai.networks.nets import UNETR
    m = UNETR(in_channels=1, out_channels=2, img_size=(32, 32), feature_size=8, hidden_size=16, mlp_dim=20, num_heads=2, spatial_dims=2)
    return m, (torch.randn(1, 1, 32, 32),), {}


@case("monai", "DynUNet")
def _(torch):
    from monai.networks.nets import DynUNet
    m = DynUNet(spatial_dims=2, in_channels=1, out_channels=2, kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2], filters=[4, 8, 16])
    return m, (torch.randn(1, 1, 32, 32),), {}


@case("pytorch-tabnet", "TabNet")
def _(torch):
    from pytorch_tabnet.tab_network import TabNet
    m = TabNet(8, 3, cat_idxs=[], cat_dims=[], cat_emb_dim=[], group_attention_matrix=torch.eye(8))
    return m, (torch.randn(16, 8),), {}


@case("entmax", "sparsemax, entmax15, bisection")
def _(torch):
    from entmax import entmax15, entmax_bisect, sparsemax

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            y = self.linear(x)
            return sparsemax(y, -1) + entmax15(y, -1) + entmax_bisect(y, 1.3)
    return Model(), (torch.randn(3, 4),), {}
