"""What TensorFlow's compiler is told: routes, order, shapes, and lowering."""
