"""There is no export to ONNX."""
