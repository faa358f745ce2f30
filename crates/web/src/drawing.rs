//! The parts of all SVG drawings: rectangles with tooltips, texts, lines and curves, for a page or a separate
//! file.
//!
//! The report's timeline, `kilnyard simulate --svg` and the chart of `kilnyard bench roots` decide what goes
//! where; this module writes it. `maud` escapes text, and a length is always a valid SVG number.

use crate::clean;
use maud::{Markup, PreEscaped, Render, html};

/// A position or a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Length {
    Pixels(f64),
    /// A fraction of the drawing's width, from 0 to 1, so that the drawing follows the width of the window.
    Share(f64),
}

impl Render for Length {
    fn render_to(&self, out: &mut String) {
        let (number, digits, unit) = match *self {
            Length::Pixels(pixels) => (pixels.max(0.0), 2, ""),
            Length::Share(share) => (share.clamp(0.0, 1.0) * 100.0, 3, "%"),
        };
        let number = if number.is_finite() { number } else { 0.0 };
        let text = format!("{number:.digits$}");
        out.push_str(text.trim_end_matches('0').trim_end_matches('.'));
        out.push_str(unit);
    }
}

impl From<f64> for Length {
    fn from(pixels: f64) -> Length {
        Length::Pixels(pixels)
    }
}

impl From<u32> for Length {
    fn from(pixels: u32) -> Length {
        Length::Pixels(pixels.into())
    }
}

/// Left, top, width and height.
pub(crate) type Area = [Length; 4];

/// The part of a text that is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The start of the text.
    Start,
    /// The middle of the text.
    Middle,
    /// The end of the text.
    End,
}

/// A rectangle with a tooltip, unless the tooltip is empty.
pub(crate) fn rectangle(class: &str, [x, y, width, height]: Area, tooltip: &str) -> Markup {
    html! {
        rect class=(class) x=(x) y=(y) width=(width) height=(height) {
            @if !tooltip.is_empty() { title { (tooltip) } }
        }
    }
}

/// A line of text. An empty class is left out.
pub(crate) fn label(class: &str, x: Length, y: Length, anchor: Anchor, text: &str) -> Markup {
    let class = (!class.is_empty()).then_some(class);
    let anchor = match anchor {
        Anchor::Start => None,
        Anchor::Middle => Some("middle"),
        Anchor::End => Some("end"),
    };
    html! { text class=[class] x=(x) y=(y) text-anchor=[anchor] { (text) } }
}

pub(crate) fn vertical(class: Option<&str>, x: Length, top: Length, bottom: Length) -> Markup {
    html! { line class=[class] x1=(x) x2=(x) y1=(top) y2=(bottom) {} }
}

/// A drawing in a separate file. All lengths are in pixels.
pub struct Drawing {
    head: String,
    body: String,
}

impl Drawing {
    /// An empty drawing with a style sheet.
    pub fn new(width: f64, height: f64, title: &str, style: &'static str) -> Drawing {
        let (width, height) = (Length::from(width).render().0, Length::from(height).render().0);
        let head = html! {
            title { (title) }
            "\n" style { (PreEscaped(style)) } "\n"
        };
        let open = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n"
        );
        Drawing { head: open + &head.0, body: String::new() }
    }

    /// Adds a rectangle with a tooltip, unless the tooltip is empty.
    pub fn rectangle(&mut self, class: &str, area: [f64; 4], tooltip: &str) {
        self.add(rectangle(class, area.map(Length::from), tooltip));
    }

    /// Adds a line of text. An empty class is left out.
    pub fn label(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        self.add(label(class, x.into(), y.into(), anchor, text));
    }

    /// Adds a vertical line.
    pub fn vertical(&mut self, class: &str, x: f64, top: f64, bottom: f64) {
        self.add(vertical(Some(class), x.into(), top.into(), bottom.into()));
    }

    /// Adds a curve. `path` has the syntax of an SVG path's `d` attribute.
    pub fn path(&mut self, class: &str, path: &str) {
        self.add(html! { path class=(class) d=(path) {} });
    }

    /// Returns the text of the file.
    pub fn finish(self) -> String {
        clean::only_shown(self.head + &self.body + "</svg>\n")
    }

    /// Adds an element.
    pub(crate) fn add(&mut self, one: Markup) {
        self.body.push_str(&one.0);
        self.body.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_plain_numbers() {
        let shown = |length: Length| length.render().0;
        for (share, expected) in [
            (0.0, "0%"),
            (0.1, "10%"),
            (1.0 / 3.0, "33.333%"),
            (f64::NAN, "0%"),
            (f64::INFINITY, "100%"),
            (-3.0, "0%"),
        ] {
            assert_eq!(shown(Length::Share(share)), expected);
        }
        for (pixels, expected) in [
            (0.0, "0"),
            (100.0, "100"),
            (1.0 / 3.0, "0.33"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
            (-1.0, "0"),
        ] {
            assert_eq!(shown(Length::Pixels(pixels)), expected);
        }
    }

    #[test]
    fn a_file_has_its_parts_in_order_and_text_is_escaped() {
        let mut drawing = Drawing::new(100.0, 50.5, "<a> & \"b\"\u{1b}", "text{fill:#222}");
        drawing.rectangle("one", [1.0, 2.0, 3.0, 4.0], "</title><script>");
        drawing.label("", 1.0, 2.0, Anchor::End, "x<y\u{202e}");
        drawing.vertical("grid", 5.0, 0.0, 9.0);
        drawing.path("curve", "M0 0H5");
        assert_eq!(
            drawing.finish(),
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 100 50.5\" width=\"100\" height=\"50.5\" role=\"img\">\n\
             <title>&lt;a&gt; &amp; &quot;b&quot;</title>\n<style>text{fill:#222}</style>\n\
             <rect class=\"one\" x=\"1\" y=\"2\" width=\"3\" height=\"4\"><title>&lt;/title&gt;&lt;script&gt;</title></rect>\n\
             <text x=\"1\" y=\"2\" text-anchor=\"end\">x&lt;y</text>\n\
             <line class=\"grid\" x1=\"5\" x2=\"5\" y1=\"0\" y2=\"9\"></line>\n\
             <path class=\"curve\" d=\"M0 0H5\"></path>\n</svg>\n"
        );
    }
}
