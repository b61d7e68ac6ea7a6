#!/usr/bin/env python3
"""Small models of `transformers` (random weights) and torchvision's, through torch.compile(backend="taper") against eager PyTorch.

  tests/oracle/bridge_models.py [--torchvision] [--device cpu|cuda] [--jobs N] [--against BACKEND] [NAME ...]

Each model runs forward (no gradients) and one training step with dropout on, same seed; compared are results, loss and every gradient; where gradients differ, their errors against float64 decide. Prints a row a model:
the largest differences relative to the largest element, graphs, calls that stay in PyTorch. Skips loudly without the packages.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import time

TEXT = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, max_position_embeddings=64)
DECODER = dict(TEXT, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
VISION = dict(image_size=32, patch_size=8, num_channels=3, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37)
# name -> (configuration, model, settings, kind of input)
MODELS = {
    "bert": ("BertConfig", "BertForMaskedLM", TEXT, "labels"),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", TEXT, "labels"),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", dict(TEXT, embedding_size=32), "labels"),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", dict(vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=37, max_position_embeddings=64), "labels"),
    "albert": ("AlbertConfig", "AlbertForMaskedLM", dict(TEXT, embedding_size=16), "labels"),
    "deberta": ("DebertaConfig", "DebertaForMaskedLM", dict(TEXT, relative_attention=True, pos_att_type=["c2p", "p2c"]), "labels"),
    "deberta_v2": ("DebertaV2Config", "DebertaV2ForMaskedLM", dict(TEXT, relative_attention=True, pos_att_type=["c2p", "p2c"]), "labels"),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", TEXT, "labels"),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2), "labels"),
    "gpt_neo": ("GPTNeoConfig", "GPTNeoForCausalLM", dict(vocab_size=99, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], max_position_embeddings=64, bos_token_id=1, eos_token_id=2), "labels"),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", TEXT, "labels"),
    "gptj": ("GPTJConfig", "GPTJForCausalLM", dict(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, bos_token_id=1, eos_token_id=2), "labels"),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=37, max_position_embeddings=64, word_embed_proj_dim=32), "labels"),
    "bloom": ("BloomConfig", "BloomForCausalLM", dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=4), "labels"),
    "llama": ("LlamaConfig", "LlamaForCausalLM", DECODER, "labels"),
    "mistral": ("MistralConfig", "MistralForCausalLM", DECODER, "labels"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", dict(DECODER, intermediate_size=64, num_local_experts=4), "labels"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", DECODER, "labels"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", dict(DECODER, head_dim=8), "labels"),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", dict(DECODER, head_dim=8), "labels"),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", dict(DECODER, head_dim=8), "labels"),
    "falcon": ("FalconConfig", "FalconForCausalLM", dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2), "labels"),
    "phi": ("PhiConfig", "PhiForCausalLM", TEXT, "labels"),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", DECODER, "labels"),
    "stablelm": ("StableLmConfig", "StableLmForCausalLM", dict(DECODER), "labels"),
    "olmo": ("OlmoConfig", "OlmoForCausalLM", DECODER, "labels"),
    "cohere": ("CohereConfig", "CohereForCausalLM", DECODER, "labels"),
    "mamba": ("MambaConfig", "MambaForCausalLM", dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8), "labels"),
    "t5": ("T5Config", "T5ForConditionalGeneration", dict(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, decoder_start_token_id=0), "labels"),
    "bart": ("BartConfig", "BartForConditionalGeneration", dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2), "labels"),
    "whisper": ("WhisperConfig", "WhisperForConditionalGeneration", dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=37, decoder_ffn_dim=37, max_source_positions=30, max_target_positions=64, num_mel_bins=16, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2), "mel"),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2ForCTC", dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, conv_dim=(32, 32), conv_kernel=(8, 8), conv_stride=(4, 4), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, num_feat_extract_layers=2, mask_time_prob=0.0, layerdrop=0.0), "sound"),
    "vit": ("ViTConfig", "ViTForImageClassification", VISION, "image"),
    "deit": ("DeiTConfig", "DeiTForImageClassification", VISION, "image"),
    "beit": ("BeitConfig", "BeitForImageClassification", VISION, "image"),
    "dinov2": ("Dinov2Config", "Dinov2ForImageClassification", VISION, "image"),
    "resnet": ("ResNetConfig", "ResNetForImageClassification", dict(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]), "image"),
    "convnext": ("ConvNextConfig", "ConvNextForImageClassification", dict(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2), "image"),
    "swin": ("SwinConfig", "SwinForImageClassification", dict(image_size=32, patch_size=2, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4), "image"),
    "segformer": ("SegformerConfig", "SegformerForImageClassification", dict(hidden_sizes=[8, 16], depths=[1, 1], num_encoder_blocks=2, num_attention_heads=[1, 2], sr_ratios=[2, 1], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2]), "image"),
    "mobilenet_v2": ("MobileNetV2Config", "MobileNetV2ForImageClassification", dict(image_size=32), "image"),
    "clip": ("CLIPConfig", "CLIPModel", dict(text_config=dict(TEXT, eos_token_id=2), vision_config=VISION, projection_dim=16), "both"),
}
TORCHVISION = ["alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_x_400mf",
               "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11_bn", "vit_b_32", "wide_resnet50_2", "fcn_resnet50", "deeplabv3_mobilenet_v3_large"]


def build(name, device):
    """-> (model, keyword inputs, loss of what it returns)"""
    import torch
    torch.manual_seed(0)
    if name.startswith("tv:"):
        import torchvision
        name = name[3:]
        size = 224 if name.split("_")[0] in ("maxvit", "vit", "swin") else 96 if name.startswith("inception") else 64
        kw = {"init_weights": True} if name in ("googlenet", "inception_v3") else {"weights_backbone": None} if name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large") else {}
        m = torchvision.models.get_model(name, weights=None, **kw).to(device)
        return m, {"x": torch.randn(2, 3, size, size, device=device)}, lambda o: sum(t.float().square().mean() for t in tensors(o))
    import transformers
    config, model, settings, kind = MODELS[name]
    m = getattr(transformers, model)(getattr(transformers, config)(**settings)).to(device)
    ids = torch.randint(3, 30, (2, 16), device=device)
    if kind == "labels":
        kw = {"input_ids": ids, "labels": ids}
    elif kind == "mel":
        kw = {"input_features": torch.randn(2, 16, 60, device=device), "labels": ids[:, :8]}
    elif kind == "sound":
        kw = {"input_values": torch.randn(2, 400, device=device), "labels": ids[:, :4]}
    elif kind == "image":
        kw = {"pixel_values": torch.randn(2, 3, 32, 32, device=device), "labels": torch.tensor([0, 1], device=device)}
    else:
        kw = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32, device=device), "return_loss": True}
    return m, kw, lambda o: o.loss


def tensors(o):
    import torch
    return [t for t in torch.utils._pytree.tree_leaves(dict(o) if hasattr(o, "items") else o) if isinstance(t, torch.Tensor)]


def apart(a, b):
    """The largest difference, relative to the largest element; inf where types differ."""
    import torch
    worst, top = 0.0, max((x.double().abs().max().item() for x in a if x is not None and x.numel()), default=0)
    for x, y in zip(a, b):
        if (x is None) != (y is None) or x is not None and (x.shape != y.shape or x.dtype != y.dtype or x.stride() != y.stride()):
            return float("inf")
        if x is None or not x.numel():
            continue
        d = (x.double() - y.double()).abs().max().item() if not torch.equal(x.isnan(), y.isnan()) or not x.isnan().any() else 0.0
        worst = max(worst, d / max(x.double().abs().max().item(), 1e-4 * top, 1e-9))  # some gradients are 0 but for rounding
    return worst if len(a) == len(b) else float("inf")


def against_double(m, kw, loss_of, backend, state, tries=8):
    """The errors of a backend and of eager against float64: the middle one of several inputs (next to the given one, then others).

    A step of a model with kinks (ReLU) is not continuous: where rounding takes a value across 0 the gradient is another one, in eager PyTorch as
    elsewhere."""
    import copy
    import torch
    torch._dynamo.reset()
    for mod in m.modules():
        if isinstance(mod, torch.nn.Dropout):
            mod.p = 0.0
    wide = copy.deepcopy(m).double()
    compiled, errors = torch.compile(m, backend=backend), [[], []]

    def grads(f, model, given):
        model.load_state_dict(state)
        model.zero_grad()
        loss_of(f(**given)).backward()
        return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])
    for i in range(tries):
        torch.manual_seed(i)
        given = {k: v if not v.is_floating_point() or not i else torch.nextafter(v, torch.randn_like(v)) if i < tries // 2 else torch.randn_like(v) for k, v in kw.items()}
        exact = grads(wide, wide, {k: v.double() if v.is_floating_point() else v for k, v in given.items()})
        for e, f in zip(errors, (compiled, m)):
            e.append(float((grads(f, m, given) - exact).norm() / exact.norm()))
    return [sorted(e)[tries // 2] for e in errors]


def one(name, device, against):
    import torch
    torch.set_num_threads(1)
    if against == "taper":
        import taper.torch
        backend, ledger = taper.torch.backend, taper.torch.ledger
    else:
        backend, ledger = against, list
    seen = []
    real = torch._dynamo.utils.counters
    m, kw, loss_of = build(name, device)
    m.eval()
    with torch.no_grad():
        want = tensors(m(**kw))
        got = tensors(torch.compile(m, backend=backend)(**kw))
    forward = apart(want, got)
    torch._dynamo.reset()

    def step(f):
        torch.manual_seed(7)
        m.zero_grad()
        loss = loss_of(f(**kw))
        loss.backward()
        return [loss.detach()] + [None if p.grad is None else p.grad.clone() for p in m.parameters()]
    m.train()
    state = {k: v.clone() for k, v in m.state_dict().items()}
    want = step(m)
    after = {k: v.clone() for k, v in m.state_dict().items()}
    m.load_state_dict(state)
    t = time.process_time()
    got = step(torch.compile(m, backend=backend))
    seconds = time.process_time() - t
    stats = apart(list(after.values()), list(m.state_dict().values()))
    calls = collections.Counter(row[2] for row in ledger())
    training, exact = apart(want, got), None
    if training >= 1e-3:  # float64 decides: all gradients together, without dropout
        exact = against_double(m, kw, loss_of, backend, state)
    return {"forward": forward, "training": training, "exact": exact, "buffers": stats, "seconds": seconds, "graphs": real["stats"]["unique_graphs"], "breaks": sum(real["graph_break"].values()),
            "calls": dict(calls), "seen": seen}


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--child")
    a.add_argument("--torchvision", action="store_true")
    a.add_argument("--device", default="cpu")
    a.add_argument("--against", default="taper")
    a.add_argument("--jobs", type=int, default=1)
    a.add_argument("names", nargs="*")
    a = a.parse_args()
    if a.child:
        print(json.dumps(one(a.child, a.device, a.against)))
        return 0
    try:
        __import__("torchvision" if a.torchvision else "transformers")
    except ImportError as e:
        print(f"SKIPPED: {e}")
        return 0
    names = ["tv:" + n for n in (a.names or TORCHVISION)] if a.torchvision else a.names or list(MODELS)
    print("| model | forward | training | graphs | breaks | step, s | in PyTorch |\n| --- | --- | --- | --- | --- | --- | --- |", flush=True)

    def row(name):
        p = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", name, "--device", a.device, "--against", a.against], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if p.returncode:
            print(f"| {name} | FAILED | {(p.stderr.strip().splitlines() or ['signal'])[-1][:160]} | | | | |", flush=True)
            return False
        r = json.loads(p.stdout.splitlines()[-1])
        ok = max(r["forward"], 0 if r["exact"] else r["training"], r["buffers"]) < 1e-3 and (not r["exact"] or r["exact"][0] <= 1.5 * r["exact"][1])
        exact = ", of float64 {:.1e}, eager {:.1e}".format(*r["exact"]) if r["exact"] else ""
        print(f"| {name} | {r['forward']:.1e} | {r['training']:.1e}{exact}{'' if ok else ' WRONG'} | {r['graphs']} | {r['breaks']} | {r['seconds']:.1f} | "
              f"{', '.join(f'{k} {v}' for k, v in sorted(r['calls'].items()))} |", flush=True)
        return ok
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        good = sum(pool.map(row, names))
    print(f"\n{good} of {len(names)} models agree with eager PyTorch")
    return 0 if good == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
