"""Global switches: which implementation runs, and which fake quantisation is on."""


class Backend:
    attention = "dense"   # "flex": FlexAttention, CUDA only; "dense": plain, the definition
    experts = "loop"      # "grouped": grouped matrix product, CUDA only; "loop": one product an expert
    dense_chunk = 16      # sequences a step of the dense attention on large CUDA inputs


class Quant:
    """Fake quantisation with straight-through gradients.

    weights: to their storage formats. kv: window KV to FP8, compressed KV and index vectors to FP4.
    act: inputs of FP8 and FP4 matrices to FP8.
    """

    weights = False
    kv = False
    act = False

    @classmethod
    def set(cls, weights=False, kv=False, act=False):
        cls.weights, cls.kv, cls.act = weights, kv, act
