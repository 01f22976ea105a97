"""PyTorch models in: a module with an example of its input, or a saved `torch.export` archive → Graph.

Only `reader` imports PyTorch at once, so it is imported when a model needs it.
"""
