"""Where ops come from: script ops, `hostcall.callback`, tracing, gradients."""
