"""PyTorch models in: a module with an example of its input, or a saved `torch.export` archive → Graph.

`reading` imports PyTorch, which nothing else needs: it is imported where a model asks for it.
"""
