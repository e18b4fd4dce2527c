"""PyTorch: functions and modules that ``torch.export`` traces, by way of torch-mlir."""
