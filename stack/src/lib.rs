//! What a network *is*: plain data with every number resolved, and the only traversal.
