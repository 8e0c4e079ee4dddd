//! Disorder: whatever comes in whatever order, the judge stays bounded and does not panic.
