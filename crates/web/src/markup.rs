//! The only place that writes a tag.
//!
//! Element and attribute names are `&'static str`, which means: known when Kilnyard is compiled. Everything else goes
//! through [`Markup::text`] or an attribute value, and is cleaned and escaped there. Elements are closed by the function
//! that opened them, so tags balance by construction.

use crate::clean;

/// Attributes of an element: names known when Kilnyard is compiled, values from anywhere.
pub(crate) type Attributes<'a> = &'a [(&'static str, &'a str)];

/// A growing piece of HTML that is well-formed at every moment an element is closed.
#[derive(Default)]
pub(crate) struct Markup {
    text: String,
}

impl Markup {
    /// Writes an element and lets `inside` write what it holds.
    pub(crate) fn element(
        &mut self,
        tag: &'static str,
        attributes: Attributes<'_>,
        inside: impl FnOnce(&mut Markup),
    ) {
        self.open(tag, attributes);
        self.text.push('>');
        inside(self);
        self.text.push_str("</");
        self.text.push_str(tag);
        self.text.push('>');
        if ends_line(tag) {
            self.text.push('\n');
        }
    }

    /// Writes an element that holds only text.
    pub(crate) fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: &str) {
        self.element(tag, attributes, |out| out.text(text));
    }

    /// Writes an element that holds nothing.
    pub(crate) fn void(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.open(tag, attributes);
        self.text.push_str("/>");
    }

    /// Writes text: cleaned of control sequences, then escaped.
    pub(crate) fn text(&mut self, text: &str) {
        escape(text, &mut self.text);
    }

    /// Writes markup that is part of the program.
    pub(crate) fn literal(&mut self, markup: &'static str) {
        self.text.push_str(markup);
    }

    /// What was written.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.text.push('<');
        self.text.push_str(tag);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
    }
}

/// Elements after which a line feed changes nothing on the page and makes its source readable.
fn ends_line(tag: &str) -> bool {
    matches!(
        tag,
        "head"
            | "title"
            | "style"
            | "body"
            | "header"
            | "nav"
            | "main"
            | "footer"
            | "section"
            | "article"
            | "div"
            | "h1"
            | "h2"
            | "h3"
            | "p"
            | "ul"
            | "ol"
            | "li"
            | "dl"
            | "dt"
            | "dd"
            | "table"
            | "caption"
            | "thead"
            | "tbody"
            | "tr"
            | "details"
            | "summary"
            | "pre"
            | "svg"
            | "g"
            | "rect"
            | "defs"
    )
}

/// Escapes for text and for attribute values in double quotes alike. The quotes are escaped in text too: it costs a
/// few bytes and there is one rule.
fn escape(text: &str, out: &mut String) {
    let needs_cleaning = text.chars().any(|character| character.is_control() || !character.is_ascii());
    let cleaned;
    let text = if needs_cleaning {
        cleaned = clean::strip(text);
        &cleaned
    } else {
        text
    };
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(character),
        }
    }
}

/// A fraction of the width of a drawing as an SVG length, always a plain number.
pub(crate) fn length(fraction: f64) -> String {
    let percent = if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) * 100.0 };
    let text = format!("{percent:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_are_escaped() {
        let mut out = Markup::default();
        out.element("a", &[("title", "\"><script>'&")], |out| {
            out.text("</a><script>alert('1')</script>\u{1b}[1m")
        });
        assert_eq!(
            out.finish(),
            "<a title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\">&lt;/a&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;</a>"
        );
    }

    #[test]
    fn elements_nest_and_void_elements_close_themselves() {
        let mut out = Markup::default();
        out.element("b", &[], |out| {
            out.leaf("i", &[("class", "x")], "y");
            out.void("br", &[]);
        });
        assert_eq!(out.finish(), "<b><i class=\"x\">y</i><br/></b>");
    }

    #[test]
    fn lengths_are_plain_numbers() {
        assert_eq!(length(0.0), "0%");
        assert_eq!(length(0.1), "10%");
        assert_eq!(length(1.0 / 3.0), "33.333%");
        assert_eq!(length(f64::NAN), "0%");
        assert_eq!(length(f64::INFINITY), "100%");
        assert_eq!(length(-3.0), "0%");
    }
}
