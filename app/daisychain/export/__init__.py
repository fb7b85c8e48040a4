"""What becomes of a trained model: files for others, files to go on from, the inference kit.

``checkpoint`` holds a model with its run and writes and reads both as one zip; ``hugging_face`` is
the layout of the model's part; ``safetensors`` and ``archive`` are the two containers.
"""
