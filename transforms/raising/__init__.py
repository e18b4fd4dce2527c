"""What ``raise-attention`` is made of: tensors seen element by element, so that reshapes, layouts and casts vanish.

| file            | job                                                                                      |
| --------------- | ---------------------------------------------------------------------------------------- |
| indices.py      | an index as a sum of loop variables; taken apart by collapse_shape, put together again   |
| expressions.py  | what an element is, as a graph of scalar operations in real numbers                      |
| tracing.py      | from an element of a tensor to its expression, through linalg and reshapes               |
| quotients.py    | an expression as a quotient of products; sums along a variable                           |
| softmax.py      | whether an expression is a softmax along a variable, and of what                         |
| signs.py        | whether a number cannot be negative                                                      |
| sinks.py        | exponentials in its sum that meet no values                                              |
| normalised.py   | where in an expression exponentials are divided by their sum                             |
| contraction.py  | whether an element is a sum of products, and of which tensors                            |
| matching.py     | all of it together: the attention that an op ends                                        |
| distributing.py | a matmul of a sum of probabilities as a sum of matmuls                                   |
| masks.py        | masks to the outside of the scores                                                       |
| emission.py     | from an expression to one linalg.generic; what does not vary with the tile stays outside |
| tensors.py      | sums of products over variables, and back to the dimensions of an op's result            |
| rebuilding.py   | the attention in its normal form                                                         |
"""
