//! The storewatch agent: sources, engine, publishers and command line around the pure core.
//!
//! ```text
//! source/* ──► observe (bounded, loss counted) ──► engine (one owner) ──► watch<Arc<Snapshot>> ──► publish/*
//!                        ◄── requests ──────────────┘
//! ```

pub mod app;
pub mod ask;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod engine;
pub mod kubernetes;
pub mod netns;
pub mod observe;
pub mod publish;
pub mod recording;
pub mod requests;
pub mod runtime;
mod shape;
pub mod source;
pub mod state;
mod wiring;
