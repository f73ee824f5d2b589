"""Shape of the model, and its translation to and from config.json with the official key names."""
from dataclasses import dataclass

from engram import engram_primes


@dataclass
class Config:
    vocab_size: int = 8192
    dim: int = 512
    n_layers: int = 8
    n_heads: int = 8
    head_dim: int = 64
    rope_dim: int = 32
    q_lora_rank: int = 128
    o_groups: int = 2
    o_lora_rank: int = 128
    window: int = 64
    compress_ratios: tuple = (0, 2, 2, 2, 1, 1, 1, 1)
    kv_source: tuple = (1, 4)
    index_source: tuple = (1, 3, 4, 6)
    candidate_source: int = 4
    candidate_block: int = 16
    candidate_topk: int = 16
    index_heads: int = 4
    index_dim: int = 32
    index_topk: int = 64
    n_experts: int = 16
    n_active: int = 2
    inter: int = 256
    route_scale: float = 1.5
    swiglu_limit: float = 10.0
    hc_mult: int = 4
    hc_iters: int = 20
    hc_eps: float = 1e-6
    norm_eps: float = 1e-20
    rope_theta: float = 10000.0
    compress_theta: float = 160000.0
    yarn_orig: int = 1024
    yarn_factor: float = 16.0
    yarn_fast: float = 32.0
    yarn_slow: float = 1.0
    max_positions: int = 16384
    engram_layers: tuple = (1, 3)
    engram_ngram: int = 4
    engram_bucket: int = 16000
    engram_heads: int = 4
    engram_dim: int = 32
    engram_pad: int = 2
    engram_vocab: int = 0
    dspark_stages: int = 3
    dspark_block: int = 5
    dspark_experts: int = 8
    dspark_active: int = 2
    dspark_targets: tuple = (3, 5, 7)
    dspark_rank: int = 64
    dspark_noise: int = 2
    bos: int = 0
    eos: int = 1
    pad: int = 2
    image_token_id: int = -1

    def hf(self):
        """config.json with the official key names"""
        rows = [sum(p) for p in engram_primes(self)] if self.engram_layers else []
        t = {
            "model_type": "deepseek_v41_text", "vocab_size": self.vocab_size, "hidden_size": self.dim,
            "moe_intermediate_size": self.inter, "num_hidden_layers": self.n_layers,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": 1, "head_dim": self.head_dim, "qk_rope_head_dim": self.rope_dim,
            "q_lora_rank": self.q_lora_rank, "o_lora_rank": self.o_lora_rank, "o_groups": self.o_groups,
            "hidden_act": "silu", "swiglu_limit": self.swiglu_limit, "rms_norm_eps": self.norm_eps,
            "attention_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True,
            "tie_word_embeddings": False, "max_position_embeddings": self.max_positions,
            "rope_theta": self.rope_theta,
            "rope_scaling": {"rope_type": "yarn", "factor": self.yarn_factor, "beta_fast": self.yarn_fast,
                             "beta_slow": self.yarn_slow, "original_max_position_embeddings": self.yarn_orig},
            "n_routed_experts": self.n_experts, "n_shared_experts": 1, "num_experts_per_tok": self.n_active,
            "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True,
            "routed_scaling_factor": self.route_scale, "sliding_window": self.window,
            "compress_ratios": list(self.compress_ratios) + [0] * self.dspark_stages,
            "compress_rope_theta": self.compress_theta, "kv_source_layer_ids": list(self.kv_source),
            "index_source_layer_ids": list(self.index_source), "index_n_heads": self.index_heads,
            "index_head_dim": self.index_dim, "index_topk": self.index_topk,
            "candidate_source_layer_id": self.candidate_source, "candidate_topk_blocks": self.candidate_topk,
            "candidate_block_size": self.candidate_block, "hc_mult": self.hc_mult,
            "hc_sinkhorn_iters": self.hc_iters, "hc_eps": self.hc_eps,
            "engram_layer_ids": list(self.engram_layers), "engram_num_embeddings": rows,
            "engram_max_ngram_size": self.engram_ngram, "engram_vocab_size": self.engram_bucket,
            "engram_n_heads": self.engram_heads, "engram_head_dim": self.engram_dim,
            "engram_pad_token_id": self.engram_pad, "engram_compressed_vocab_size": self.engram_vocab,
            "num_nextn_predict_layers": self.dspark_stages,
            "dspark_block_size": self.dspark_block if self.dspark_stages else 0,
            "dspark_noise_token_id": self.dspark_noise, "dspark_target_layer_ids": list(self.dspark_targets),
            "dspark_markov_rank": self.dspark_rank, "dspark_n_routed_experts": self.dspark_experts,
            "dspark_num_experts_per_tok": self.dspark_active,
        }
        return {
            "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
            "bos_token_id": self.bos, "eos_token_id": self.eos, "pad_token_id": self.pad,
            "image_token_id": self.image_token_id,
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                    "weight_block_size": [32, 32], "scale_fmt": "ue8m0",
                                    "expert_dtype": "fp4"},
            "text_config": t, "vision_config": None,
        }

    @staticmethod
    def from_hf(c):
        t = c["text_config"]
        s = int(t.get("num_nextn_predict_layers", 0))
        rs = t["rope_scaling"]
        return Config(
            vocab_size=t["vocab_size"], dim=t["hidden_size"], n_layers=t["num_hidden_layers"],
            n_heads=t["num_attention_heads"], head_dim=t["head_dim"], rope_dim=t["qk_rope_head_dim"],
            q_lora_rank=t["q_lora_rank"], o_groups=t["o_groups"], o_lora_rank=t["o_lora_rank"],
            window=t["sliding_window"], compress_ratios=tuple(t["compress_ratios"][:t["num_hidden_layers"]]),
            kv_source=tuple(t["kv_source_layer_ids"]), index_source=tuple(t["index_source_layer_ids"]),
            candidate_source=t["candidate_source_layer_id"], candidate_block=t["candidate_block_size"],
            candidate_topk=t["candidate_topk_blocks"], index_heads=t["index_n_heads"],
            index_dim=t["index_head_dim"], index_topk=t["index_topk"], n_experts=t["n_routed_experts"],
            n_active=t["num_experts_per_tok"], inter=t["moe_intermediate_size"],
            route_scale=t["routed_scaling_factor"], swiglu_limit=t["swiglu_limit"], hc_mult=t["hc_mult"],
            hc_iters=t["hc_sinkhorn_iters"], hc_eps=t["hc_eps"], norm_eps=t["rms_norm_eps"],
            rope_theta=t["rope_theta"], compress_theta=t["compress_rope_theta"],
            yarn_orig=rs["original_max_position_embeddings"], yarn_factor=rs["factor"],
            yarn_fast=rs["beta_fast"], yarn_slow=rs["beta_slow"], max_positions=t["max_position_embeddings"],
            engram_layers=tuple(t["engram_layer_ids"]), engram_ngram=t["engram_max_ngram_size"],
            engram_bucket=t["engram_vocab_size"], engram_heads=t["engram_n_heads"],
            engram_dim=t["engram_head_dim"], engram_pad=t["engram_pad_token_id"],
            engram_vocab=t["engram_compressed_vocab_size"], dspark_stages=s,
            dspark_block=t["dspark_block_size"],
            dspark_experts=t["dspark_n_routed_experts"] or t["n_routed_experts"],
            dspark_active=t["dspark_num_experts_per_tok"] or t["num_experts_per_tok"],
            dspark_targets=tuple(t["dspark_target_layer_ids"]), dspark_rank=t["dspark_markov_rank"],
            dspark_noise=t["dspark_noise_token_id"], bos=c["bos_token_id"], eos=c["eos_token_id"],
            pad=c["pad_token_id"], image_token_id=c.get("image_token_id", -1))
