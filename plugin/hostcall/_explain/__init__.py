"""`hostcall.explain`: facts on a function, as a table or as a page with pictures."""
