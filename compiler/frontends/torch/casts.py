"""What torch.export writes down of casts: beside each that it traces stands what it expects of the operand.

%n = aten._assert_tensor_metadata(%x, None, None, torch.bfloat16)
%y = aten._to_copy(%x, dtype=torch.float32)
"""

import torch


def forget_asserts(graph: torch.fx.Graph) -> None:
    """Erases them: as readers they would keep alive what no one else reads, and look like another use of the rest."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        graph.erase_node(node)
