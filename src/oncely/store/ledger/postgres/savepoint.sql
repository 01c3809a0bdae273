-- `oncely_point` is replaced by a name of the block's own: blocks may be nested.
savepoint oncely_point
