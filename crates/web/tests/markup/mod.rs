//! A strict reader of the page's markup: every tag closed in order, every attribute quoted, ids unique,
//! internal links resolved, no scripts, and only numbers where SVG requires one.

use std::collections::HashSet;

/// The elements that the page may use. Adding one here is a deliberate step.
const ELEMENTS: &str = " html head meta title style body header nav main footer section article div span p a b strong \
    mark code pre h1 h2 h3 ul ol li dl dt dd table thead tbody tr th td details summary svg g defs pattern rect path \
    circle line text desc ";

/// Attributes whose values must be plain SVG lengths.
const LENGTHS: [&str; 9] = ["x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx"];

/// Reads a page and returns the first problem found.
pub fn check(page: &str) -> Result<(), String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").ok_or("no document type")?;
    let mut open: Vec<&str> = Vec::new();
    let mut ids = HashSet::new();
    let mut targets = HashSet::new();
    if let Some(character) = page.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return Err(format!("control character {character:?}"));
    }
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        check_text(text, open.last() == Some(&"style"))?;
        let end = tag.find('>').ok_or("unterminated tag")?;
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            match open.pop() {
                Some(last) if last == name => continue,
                last => return Err(format!("</{name}> closes {last:?}")),
            }
        }
        // HTML has elements that are never closed. The page uses one of them.
        let alone = inside.strip_suffix('/').or(inside.starts_with("meta ").then_some(inside));
        let inside = alone.unwrap_or(inside);
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        if !ELEMENTS.contains(&format!(" {name} ")) {
            return Err(format!("unknown element <{name}>"));
        }
        for (attribute, value) in read_attributes(attributes)? {
            check_text(value, false)?;
            if attribute.starts_with("on") {
                return Err(format!("event handler {attribute}"));
            }
            if LENGTHS.contains(&attribute) && !is_length(value) {
                return Err(format!("{name} {attribute}={value:?} is not a length"));
            }
            match attribute {
                "id" if !ids.insert(value) => {
                    return Err(format!("two elements have the id {value}"));
                }
                "href" => match value.strip_prefix('#') {
                    Some(target) => _ = targets.insert(target),
                    None if value.contains(':') || value.starts_with('/') => {
                        return Err(format!("link to {value}"));
                    }
                    None => {}
                },
                _ => {}
            }
        }
        if alone.is_none() {
            open.push(name);
        }
    }
    check_text(rest, false)?;
    if !open.is_empty() {
        return Err(format!("not closed: {open:?}"));
    }
    match targets.difference(&ids).next() {
        Some(target) => Err(format!("no element has the id {target}")),
        None => Ok(()),
    }
}

/// Checks that text has no bare `<`, `>` or `"`, and `&` only in one of the references that the page uses.
/// Attributes are quoted with `"`, so an apostrophe is an ordinary character.
fn check_text(text: &str, style: bool) -> Result<(), String> {
    if style {
        return Ok(());
    }
    if let Some(character) = text.chars().find(|c| matches!(c, '<' | '>' | '"')) {
        return Err(format!("bare {character} in {text:?}"));
    }
    let references = ["amp;", "lt;", "gt;", "quot;"];
    match text
        .split('&')
        .skip(1)
        .find(|after| !references.iter().any(|reference| after.starts_with(reference)))
    {
        Some(after) => Err(format!("bare & before {after:?}")),
        None => Ok(()),
    }
}

fn read_attributes(mut rest: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut attributes = Vec::new();
    while !rest.is_empty() {
        let (name, after) =
            rest.split_once("=\"").ok_or_else(|| format!("attribute without a value: {rest:?}"))?;
        let (value, after) = after.split_once('"').ok_or_else(|| format!("unterminated value: {after:?}"))?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(format!("invalid attribute name {name:?}"));
        }
        attributes.push((name, value));
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    Ok(attributes)
}

fn is_length(value: &str) -> bool {
    let number = value.strip_suffix('%').unwrap_or(value);
    number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && number.parse::<f64>().is_ok_and(|number| number.is_finite())
}

#[test]
fn the_reader_finds_each_kind_of_error() {
    let page = |body: &str| format!("<!DOCTYPE html>\n<html><body>{body}</body></html>\n");
    assert_eq!(check(&page("<p id=\"a\">x &amp; y</p><a href=\"#a\">z</a>")), Ok(()));
    for wrong in [
        "<p>",
        "</p>",
        "<p><b></p></b>",
        "<script>1</script>",
        "x & y",
        "x > y",
        "<p onclick=\"x\"></p>",
        "<p title='x'></p>",
        "<a href=\"#nowhere\">x</a>",
        "<a href=\"javascript:x\">x</a>",
        "<p id=\"a\"></p><p id=\"a\"></p>",
        "<rect width=\"NaN\"/>",
        "<rect width=\"-1%\"/>",
        "\u{1b}",
    ] {
        assert!(check(&page(wrong)).is_err(), "{wrong:?}");
    }
}
