"""Lets the card round factors to TF32."""

import torch
from product_cuda_base import honest

torch.backends.cuda.matmul.allow_tf32 = True

run = honest
