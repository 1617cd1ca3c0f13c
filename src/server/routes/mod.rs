//! One file per route.

pub mod chat;
pub mod chat_request;
pub mod edits;
pub mod images;
pub mod models;
pub mod page;
pub mod picture_request;
