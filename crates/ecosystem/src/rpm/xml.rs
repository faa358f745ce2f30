//! The XML of repositories' metadata, as a walk over elements.
//!
//! Bounds: an event, such as a tag with its attributes or a piece of text, has at most [`EVENT_BYTES_MAX`] bytes; elements
//! are nested at most [`DEPTH_MAX`] deep. Only the entities that XML predefines are known, so none expands.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

/// The longest tag or piece of text: a package's description has some kilobytes.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// The deepest element: metadata has four levels.
const DEPTH_MAX: usize = 32;

/// Metadata that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MetadataError(pub String);

/// An element begins or ends. Names are without the prefix of their namespace.
pub(super) enum Node<'n> {
    /// A tag.
    Open(Tag<'n>),
    /// The end of an element, with the text in it.
    Close(&'n str, &'n str),
}

/// An opening tag.
pub(super) struct Tag<'n> {
    /// The name.
    pub(super) name: &'n str,
    start: &'n BytesStart<'n>,
}

impl Tag<'_> {
    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Result<Option<String>, MetadataError> {
        for attribute in self.start.attributes() {
            let attribute = attribute.map_err(failed)?;
            if attribute.key.local_name().as_ref() == name.as_bytes() {
                let value = attribute
                    .decoded_and_normalized_value(XmlVersion::Implicit1_0, self.start.decoder())
                    .map_err(failed)?;
                return Ok(Some(value.into_owned()));
            }
        }
        Ok(None)
    }

    /// The value of an attribute that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<String, MetadataError> {
        let lacks = || MetadataError(format!("an element `{}` has no attribute `{name}`", self.name));
        self.attribute(name)?.ok_or_else(lacks)
    }
}

fn failed(error: impl std::fmt::Display) -> MetadataError {
    MetadataError(error.to_string())
}

/// Visits the elements in their order. The root element must have this name.
pub(super) fn walk(
    input: &mut dyn Read,
    root: &str,
    visit: &mut dyn FnMut(Node) -> Result<(), MetadataError>,
) -> Result<(), MetadataError> {
    let since = Rc::new(Cell::new(0));
    let guarded = Guarded { inner: BufReader::with_capacity(64 << 10, input), since: since.clone() };
    let mut reader = Reader::from_reader(guarded);
    reader.config_mut().expand_empty_elements = true;
    let (mut buffer, mut text) = (Vec::new(), String::new());
    let mut depth = 0;
    loop {
        buffer.clear();
        since.set(0);
        match reader.read_event_into(&mut buffer).map_err(failed)? {
            Event::Start(start) => {
                let name = start.local_name();
                let name = std::str::from_utf8(name.as_ref()).map_err(failed)?;
                if depth == 0 && name != root {
                    return Err(MetadataError(format!(
                        "it begins with an element `{name}` instead of `{root}`"
                    )));
                }
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(MetadataError("its elements are nested too deeply".to_owned()));
                }
                text.clear();
                visit(Node::Open(Tag { name, start: &start }))?;
            }
            Event::End(end) => {
                depth -= 1;
                let name = end.local_name();
                visit(Node::Close(std::str::from_utf8(name.as_ref()).map_err(failed)?, &text))?;
                text.clear();
                if depth == 0 {
                    return Ok(());
                }
            }
            Event::Text(part) => text.push_str(&part.decode().map_err(failed)?),
            Event::CData(part) => text.push_str(&part.decode().map_err(failed)?),
            Event::GeneralRef(entity) => match entity.resolve_char_ref().map_err(failed)? {
                Some(character) => text.push(character),
                None => {
                    let name = entity.decode().map_err(failed)?;
                    let known = resolve_predefined_entity(&name);
                    text.push_str(
                        known.ok_or_else(|| MetadataError(format!("the entity `{name}` is unknown")))?,
                    );
                }
            },
            Event::Eof => return Err(MetadataError("it ends early".to_owned())),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_) | Event::Empty(_) => {}
        }
        if text.len() > EVENT_BYTES_MAX {
            return Err(MetadataError("a text is too long".to_owned()));
        }
    }
}

/// Fails when an event becomes too long.
struct Guarded<R> {
    inner: R,
    /// Bytes since the last event.
    since: Rc<Cell<usize>>,
}

impl<R: BufRead> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Guarded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.since.get() > EVENT_BYTES_MAX {
            return Err(io::Error::other("an element is too long"));
        }
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.since.set(self.since.get() + count);
        self.inner.consume(count);
    }
}
