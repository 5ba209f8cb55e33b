"""Programs as objects: functions, nodes and values that know one another."""
