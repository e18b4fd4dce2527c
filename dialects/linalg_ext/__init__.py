"""The dialect ``linalg_ext``: an op a file. To add one, write its file and import it here."""

from .batch_matmul import BatchMatmulOp
from .diag import DiagOp
from .dialect import LinalgExt
from .put import PutOp
from .softmax import SoftmaxOp
from .unnorm_softmax import UnnormSoftmaxOp

__all__ = ["BatchMatmulOp", "DiagOp", "LinalgExt", "PutOp", "SoftmaxOp", "UnnormSoftmaxOp"]
