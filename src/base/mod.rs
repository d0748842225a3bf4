//! What knows nothing of text: errors, jobs, memory, files.

pub mod allocator;
pub mod cpu;
pub mod error;
pub mod files;
pub mod job;
pub mod memory;
pub mod pages;
pub mod seed;
pub mod table;
pub mod threads;
