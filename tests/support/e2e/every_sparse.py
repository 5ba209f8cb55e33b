"""Cases of ops on sets, sparse and ragged tensors, counts, and what tells its size when it runs."""

from typing import Any

import tensorflow as tf

from tests.support.e2e.every_op import case, cases, gradient_cases, raw_case
from tests.support.e2e.every_op import ints as _ints
from tests.support.e2e.every_op import longs as _longs


def sparse(x: tf.Tensor) -> Any:
    """A sparse tensor of 4 by 3 with four values."""
    return tf.SparseTensor([[0, 1], [1, 0], [2, 2], [3, 1]], x, [4, 3])


def ragged(x: tf.Tensor) -> Any:
    """A ragged tensor of two rows with four values."""
    return tf.RaggedTensor.from_row_lengths(x, tf.stack([_longs(x)[0], 4 - _longs(x)[0]]))


def _ragged(x: tf.Tensor) -> Any:
    return tf.RaggedTensor.from_row_splits(x, [0, 1, 4], validate=False)


cases(
    UniqueWithCounts=lambda x: tf.unique_with_counts(x * 2.0),
    UniqueWithCountsV2=lambda x: tf.raw_ops.UniqueWithCountsV2(x=x * 2.0, axis=[0]),
    SetSize=lambda x: tf.sets.size(sparse(_ints(x))) * 2,
    DenseToDenseSetOperation=lambda x: tf.sets.intersection(_ints(x)[None], [[3, 4]]).values,
    DenseToSparseSetOperation=lambda x: (
        tf.sets.union(_ints(x)[:, None], sparse(_ints(x) * 2)).values
    ),
    SparseToSparseSetOperation=lambda x: (
        tf.sets.difference(sparse(_ints(x)), sparse(_ints(x[::-1]))).values
    ),
    RaggedRange=lambda x: tf.ragged.range(_ints(x)).values * 2,
    RaggedCross=lambda x: (
        tf.ragged.cross_hashed([_ragged(_longs(x)), _ragged(_longs(x))], 9).values
    ),
    RaggedTensorFromVariant=lambda x: tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=tf.raw_ops.RaggedTensorToVariant(
            rt_nested_splits=[tf.constant([0, 1, 4], tf.int64)],
            rt_dense_values=x,
            batched_input=True,
        ),
        input_ragged_rank=-1,
        output_ragged_rank=1,
        Tvalues=tf.float32,
    )[1],
    RaggedBincount=lambda x: tf.math.bincount(_ragged(_ints(x)), axis=-1, maxlength=5) * 2,
    RaggedCountSparseOutput=lambda x: (
        tf.raw_ops.RaggedCountSparseOutput(
            splits=[0, 1, 4], values=_ints(x), weights=tf.zeros([0]), binary_output=False
        )[1]
        * 2
    ),
    SparseConcat=lambda x: tf.sparse.concat(0, [sparse(x), sparse(x + 1.0)]).values,
    SparseSplit=lambda x: [part.values for part in tf.sparse.split(sparse(x), 2, 0)],
    SparseDenseCwiseAdd=lambda x: tf.raw_ops.SparseDenseCwiseAdd(
        sp_indices=sparse(x).indices, sp_values=x, sp_shape=[4, 3], dense=tf.ones([4, 3])
    ),
    SparseReduceMax=lambda x: tf.sparse.reduce_max(sparse(x), axis=1) * 2.0,
    SparseReduceSumSparse=lambda x: (
        tf.sparse.reduce_sum(sparse(x), 1, output_is_sparse=True).values
    ),
    SparseReduceMaxSparse=lambda x: (
        tf.sparse.reduce_max(sparse(x), 1, output_is_sparse=True).values
    ),
    SparseSparseMaximum=lambda x: tf.sparse.maximum(sparse(x), sparse(x[::-1])),
    SparseSparseMinimum=lambda x: tf.sparse.minimum(sparse(x), sparse(x[::-1])),
    SparseCrossV2=lambda x: tf.sparse.cross([sparse(_longs(x)), _longs(x)[:, None]]).values,
    SparseCross=lambda x: tf.sparse.cross_hashed([sparse(_longs(x))], 9).values,
    SparseBincount=lambda x: tf.raw_ops.SparseBincount(
        indices=sparse(x).indices, values=_ints(x), dense_shape=[4, 3], size=5, weights=x
    ),
    DenseCountSparseOutput=lambda x: tf.sparse.bincount(_ints(x)).values * 2,
    SparseCountSparseOutput=lambda x: (
        tf.raw_ops.SparseCountSparseOutput(
            indices=sparse(x).indices,
            values=_ints(x),
            dense_shape=[4, 3],
            weights=tf.zeros([0]),
            binary_output=False,
        )[1]
        * 2
    ),
)
gradient_cases(
    RaggedGather=lambda x: tf.gather(_ragged(x), [1, 0]).values * 2.0,
    RaggedTensorToTensor=lambda x: _ragged(x).to_tensor() * 2.0,
    RaggedTensorToSparse=lambda x: _ragged(x).to_sparse().values * 2.0,
    RaggedTensorToVariant=lambda x: tf.map_fn(lambda row: row * 2.0, _ragged(x)).values,
    SparseAdd=lambda x: tf.sparse.add(sparse(x), sparse(x * 2.0)).values,
    SparseReorder=lambda x: tf.sparse.reorder(
        tf.SparseTensor([[1, 0], [0, 1], [3, 1], [2, 2]], x, [4, 3])
    ),
    SparseReshape=lambda x: tf.sparse.reshape(sparse(x), [3, 4]),
    SparseSlice=lambda x: tf.sparse.slice(sparse(x), [0, 0], [2, 3]).values * 2.0,
    SparseSoftmax=lambda x: tf.sparse.softmax(sparse(x)).values * 2.0,
    SparseTensorDenseMatMul=lambda x: (
        tf.sparse.sparse_dense_matmul(sparse(x), tf.ones([3, 2])) * 2.0
    ),
    SparseTensorDenseAdd=lambda x: tf.sparse.add(sparse(x), tf.ones([4, 3])) * 2.0,
    SparseDenseCwiseMul=lambda x: (sparse(x) * tf.ones([4, 3])).values,
    SparseDenseCwiseDiv=lambda x: (sparse(x) / tf.fill([4, 3], 2.0)).values,
    SparseReduceSum=lambda x: tf.sparse.reduce_sum(sparse(x), axis=1) * 2.0,
    SparseFillEmptyRows=lambda x: tf.sparse.fill_empty_rows(
        tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 2]], x, [4, 3]), 7.0
    )[0],
)
raw_case(
    "RaggedFillEmptyRows",
    value_rowids=lambda x: tf.constant([0, 0, 2, 2], tf.int64),
    values=lambda x: x,
    nrows=lambda x: tf.constant(3, tf.int64),
    default_value=7.0,
)


def _csr(x: tf.Tensor) -> tf.Tensor:
    s = sparse(x)
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=s.indices, values=s.values, dense_shape=s.dense_shape
    )


cases(
    SparseTensorToCSRSparseMatrix=lambda x: tf.raw_ops.SparseMatrixNNZ(sparse_matrix=_csr(x)) + 1,
    SparseMatrixNNZ=lambda x: tf.raw_ops.SparseMatrixNNZ(sparse_matrix=_csr(x)) * 2,
    DenseToCSRSparseMatrix=lambda x: tf.raw_ops.SparseMatrixNNZ(
        sparse_matrix=tf.raw_ops.DenseToCSRSparseMatrix(
            dense_input=tf.linalg.diag(x), indices=tf.where(tf.linalg.diag(x) > 1.0)
        )
    ),
    TensorMapInsert=lambda x: tf.raw_ops.TensorMapSize(
        input_handle=tf.raw_ops.TensorMapInsert(
            input_handle=tf.raw_ops.EmptyTensorMap(), key=x[0], value=x
        )
    ),
)


def _dense(matrix: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.CSRSparseMatrixToDense(sparse_input=matrix, type=tf.float32)


def _turned(matrix: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.SparseMatrixTranspose(input=matrix, type=tf.float32)


def _multiplied(matrix: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.SparseMatrixMatMul(a=matrix, b=tf.ones([3, 2]))


_inside: dict[str, Any] = {"gradient": True, "tape_outside": False}
case("CSRSparseMatrixToDense", lambda x: _dense(_csr(x)) * 2.0, **_inside)
case("SparseMatrixMatMul", lambda x: _multiplied(_csr(x)) * 2.0, **_inside)
case("SparseMatrixTranspose", lambda x: _dense(_turned(_csr(x))), **_inside)


def _list(x: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=tf.constant([], tf.int32))


cases(
    TensorListConcatLists=lambda x: tf.raw_ops.TensorListLength(
        input_handle=tf.raw_ops.TensorListConcatLists(
            input_a=_list(x), input_b=_list(x), element_dtype=tf.float32
        )
    ),
    TensorListScatterIntoExistingList=lambda x: tf.raw_ops.TensorListStack(
        input_handle=tf.raw_ops.TensorListScatterIntoExistingList(
            input_handle=_list(x), tensor=x[:2], indices=[2, 0]
        ),
        element_shape=[],
        element_dtype=tf.float32,
    ),
)
