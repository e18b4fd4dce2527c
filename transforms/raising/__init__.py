"""What ``raise-attention`` is made of: tensors seen element by element, so that reshapes, layouts and casts vanish.

| file               | job                                                                                      |
| ------------------ | ---------------------------------------------------------------------------------------- |
| indices.py         | an index as a sum of loop variables; taken apart by collapse_shape, put together again   |
| expressions.py     | what an element is, as a graph of scalar operations in real numbers                      |
| loops.py           | the loops of structured ops, and what an iteration reads and writes                      |
| tracing.py         | from an element of a tensor to its expression, through linalg and reshapes               |
| bodies.py          | the same through the regions of structured ops                                           |
| pieces.py          | the same through slices, concatenations and insertions                                   |
| padding.py         | the same through tensor.pad                                                              |
| quotients.py       | an expression as a quotient of products; sums along a variable                           |
| softmax.py         | whether an expression is a softmax along a variable, and of what                         |
| relative.py        | exponentials relative to a maximum                                                       |
| inner.py           | softmaxes that weights are a function of                                                 |
| guards.py          | maxima and sums that are guarded against rows that are masked as a whole                 |
| signs.py           | whether a number cannot be negative                                                      |
| sinks.py           | exponentials in its sum that meet no values                                              |
| own_sums.py        | probabilities divided once more, by what is made of their own sum                        |
| normalised.py      | where in an expression exponentials are divided by their sum                             |
| rounding.py        | probabilities that are rounded to 8 bits before they meet values                         |
| contraction.py     | whether an element is a sum of products, and of which tensors                            |
| matmuls.py         | the two matmuls of an attention                                                          |
| unnormalised.py    | what values are multiplied by, where there is no softmax                                 |
| matching.py        | all of it together: the attention whose result is that of an op                          |
| pairwise.py        | what is needed for each query and key, or summed, without a second matmul                |
| ends.py            | the op whose result that is: a matmul, or what transposes or divides its result          |
| statistics.py      | values elsewhere that are statistics of the softmax                                      |
| distributing.py    | a matmul of a sum of probabilities as a sum of matmuls                                   |
| joining.py         | several dimensions of keys, or of queries, as one                                        |
| masks.py           | masks to the outside of the scores                                                       |
| dead_weights.py    | masks to the outside of weights that are made without a softmax                          |
| shifts.py          | derivatives through the maximum that scores are relative to, which are 0                 |
| group_sums.py      | sums over queries of heads that share keys, one head at a time                           |
| live_rows.py       | low numbers of masks as −∞, in probabilities of rows that have a live key                |
| lines.py           | exponentials of lines in x as powers of 2                                                |
| emission.py        | from an expression to one linalg.generic; what does not vary with the tile stays outside |
| tensors.py         | sums of products over variables, and back to the dimensions of an op's result            |
| scores.py          | scores in their normal form, and what is made of them element by element                 |
| rebuilding.py      | the attention in its normal form                                                         |
| pairwise_result.py | that in its normal form                                                                  |
"""
