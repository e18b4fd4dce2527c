"""ONNX: models compiled as a whole, and a backend as onnx defines them."""

from .model import Backend, compile_onnx

__all__ = ["Backend", "compile_onnx"]
