//! The timeline: one lane per slot, one bar per build, one segment per stage.
//!
//! [`layout`] computes positions only: fractions of the width from 0 to 1. `draw` turns them into inline SVG.
//! Horizontal measures are percentages, so that the drawing follows the width of the window while its text
//! keeps its size.
//!
//! A run of thirty thousand packages has more builds than a screen has pixels. Each lane is divided into cells. A build
//! that spans several cells gets its own bar. Shorter builds add to the cells that they overlap. A cell is drawn as one
//! shade and shows how busy the slot was, how many builds it ran and how many failed. The numbers of bars and cells are
//! bounded for any run.

mod draw;
mod file;
mod layout;
mod ticks;

pub(crate) use draw::{SHADE_CLASSES, draw};
pub use file::drawing;
pub(crate) use layout::{Layout, has_builds, layout};
