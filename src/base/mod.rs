//! Errors, jobs, threads, memory, tables and files: nothing here knows about text.

pub mod cpu;
pub mod error;
pub mod files;
pub mod job;
pub mod memory;
pub mod pages;
pub mod table;
pub mod threads;
