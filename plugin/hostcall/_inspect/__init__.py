"""What files hold of Python functions: `hostcall.inspect`."""
