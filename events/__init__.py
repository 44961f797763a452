"""The log: immutable facts, their codec, the append-only stores that keep them and the proofs over them."""
