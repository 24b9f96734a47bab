//! XML responses as small trees. What a SOAP response never has (a document type, entities of its own) is refused.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// Deeper nesting and more elements are refused.
const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 400_000;

/// An element, without the prefixes of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// `xsi:type`, or `type`.
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) children: Vec<Node>,
}

impl Node {
    /// Reads a document: its outermost element. Or what is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader::from_reader(bytes);
        let mut open: Vec<Node> = vec![];
        let mut nodes = 0;
        let wrong = |error: &dyn std::fmt::Display| format!("its XML is broken ({error})");
        loop {
            let event = reader.read_event().map_err(|error| wrong(&error))?;
            let closed = match event {
                Event::Start(start) => {
                    nodes += 1;
                    if open.len() >= DEPTH_MAX || nodes > NODES_MAX {
                        return Err("its XML is too large".into());
                    }
                    open.push(Self::from_start(&start)?);
                    None
                }
                Event::Empty(start) => {
                    nodes += 1;
                    if nodes > NODES_MAX {
                        return Err("its XML is too large".into());
                    }
                    Some(Self::from_start(&start)?)
                }
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    add(&mut open, &text.decode().map_err(|error| wrong(&error))?);
                    None
                }
                Event::CData(text) => {
                    add(&mut open, &text.decode().map_err(|error| wrong(&error))?);
                    None
                }
                Event::GeneralRef(entity) => {
                    let number = entity.resolve_char_ref().map_err(|error| wrong(&error))?;
                    let name = entity.decode().map_err(|error| wrong(&error))?;
                    match (number, resolve_predefined_entity(&name)) {
                        (Some(character), _) => add(&mut open, character.encode_utf8(&mut [0; 4])),
                        (None, Some(text)) => add(&mut open, text),
                        (None, None) => return Err("its XML has entities of its own".into()),
                    }
                    None
                }
                Event::DocType(_) => return Err("its XML has a document type".into()),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => None,
                Event::Eof => return Err("its XML has no end".into()),
            };
            match (closed, open.last_mut()) {
                (Some(node), Some(parent)) => parent.children.push(node),
                (Some(node), None) => return Ok(node),
                (None, _) => {}
            }
        }
    }

    fn from_start(start: &BytesStart<'_>) -> Result<Self, String> {
        let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
        let mut kind = String::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|error| format!("its XML is broken ({error})"))?;
            if attribute.key.local_name().as_ref() == b"type" {
                let value = attribute.normalized_value(XmlVersion::Implicit1_0);
                kind = value.map_err(|error| format!("its XML is broken ({error})"))?.into_owned();
            }
        }
        // `xsi:type` may have a prefix too.
        let kind = kind.rsplit(':').next().unwrap_or_default().to_owned();
        Ok(Self { name, kind, ..Self::default() })
    }

    /// The first child of that name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children of that name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Children of children, by their names.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.child(name))
    }

    /// The text of a child, trimmed.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim())
    }

    /// The number in a child.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text_of(name)?.parse().ok()
    }
}

fn add(open: &mut [Node], text: &str) {
    if let Some(node) = open.last_mut() {
        node.text.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_tree_and_anything_dangerous_is_refused() {
        let xml = br#"<?xml version="1.0"?><s:E xmlns:s="u"><B><v xsi:type="ns:VirtualDisk">
            <n>a &lt;b&gt; &#65;</n><n/><k> 7 </k></v></B></s:E>"#;
        let tree = Node::parse(xml).unwrap();
        let disk = tree.at(&["B", "v"]).unwrap();
        assert_eq!((&*tree.name, &*disk.kind, disk.number("k")), ("E", "VirtualDisk", Some(7)));
        assert_eq!(disk.text_of("n"), Some("a <b> A"));
        assert_eq!(disk.all("n").count(), 2);
        let deep = "<a>".repeat(100);
        for broken in ["", "<a>", "<a></b>", "<!DOCTYPE a><a/>", "<a>&own;</a>", "text", &deep] {
            assert!(Node::parse(broken.as_bytes()).is_err(), "{broken}");
        }
    }
}
