//! What a sampled network *does*: the Monte-Carlo engine.
