//! Files (placeholder while the real one is merged).
