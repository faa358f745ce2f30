//! The timeline: one lane a slot, one bar a build, one segment a stage.
//!
//! [`layout`] decides where everything goes and is pure numbers: all places are fractions of the width from 0 to 1.
//! `draw` turns them into an inline SVG whose horizontal measures are percentages, so that the drawing follows the
//! width of the window while its text keeps its size.
//!
//! A run of thirty thousand packages has more builds than a screen has pixels. So each lane is divided into cells;
//! a build that covers several cells gets its own bar, and builds shorter than that add to the cells they touch,
//! which are drawn as one shade: how busy the slot was there, how many builds, how many failed. Both the bars and the
//! cells are bounded in number, whatever the run.

mod draw;
mod file;
mod layout;
mod ticks;

pub(crate) use draw::{SHADE_CLASSES, draw};
pub use file::drawing;
pub(crate) use layout::{Layout, has_builds, layout};
