//! The files and directories of a server: only data, no FUSE.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};

use super::FullAt;

/// The root directory's number, as FUSE defines it.
pub const ROOT: u64 = 1;
/// Files are stored in pieces of this many bytes; what was never written occupies nothing.
const PIECE: u64 = 64 << 10;

/// Why the server refuses a request: an `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub i32);

pub type TreeResult<T> = Result<T, Refusal>;

/// A file or directory.
#[derive(Debug)]
pub struct Node {
    pub content: Content,
    pub mode: u16,
    /// Descriptors on it.
    opens: u32,
    /// What the next `fsync` or `close` returns, once.
    pending: Option<Refusal>,
}

#[derive(Debug)]
pub enum Content {
    Directory(BTreeMap<OsString, u64>),
    File { pieces: BTreeMap<u64, Box<[u8]>>, len: u64 },
}

impl Node {
    /// Bytes that it occupies.
    pub fn occupied(&self) -> u64 {
        match &self.content {
            Content::Directory(_) => 0,
            Content::File { pieces, .. } => pieces.len() as u64 * PIECE,
        }
    }

    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Directory(_) => 4096,
            Content::File { len, .. } => *len,
        }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory(_))
    }
}

#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
    capacity: u64,
    full_at: FullAt,
    loses_writes: bool,
}

impl Tree {
    pub fn new(capacity: u64, full_at: FullAt) -> Self {
        let root = Node {
            content: Content::Directory(BTreeMap::new()),
            mode: 0o777,
            opens: 0,
            pending: None,
        };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            capacity,
            full_at,
            loses_writes: false,
        }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn occupied(&self) -> u64 {
        self.nodes.values().map(Node::occupied).sum()
    }

    pub fn has_open_files(&self) -> bool {
        self.nodes.values().any(|node| node.opens > 0)
    }

    /// See [`super::NetworkFileSystem::lose_writes`].
    pub fn lose_writes(&mut self) {
        self.loses_writes = true;
    }

    pub fn node(&self, number: u64) -> TreeResult<&Node> {
        self.nodes.get(&number).ok_or(Refusal(libc::ESTALE))
    }

    pub fn set_mode(&mut self, number: u64, mode: u16) -> TreeResult<()> {
        self.node_mut(number)?.mode = mode;
        Ok(())
    }

    pub fn child(&self, directory: u64, name: &OsStr) -> TreeResult<u64> {
        self.entries(directory)?.get(name).copied().ok_or(Refusal(libc::ENOENT))
    }

    pub fn entries(&self, directory: u64) -> TreeResult<&BTreeMap<OsString, u64>> {
        match &self.node(directory)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File { .. } => Err(Refusal(libc::ENOTDIR)),
        }
    }

    pub fn create(
        &mut self,
        directory: u64,
        name: &OsStr,
        node: (Content, u16),
    ) -> TreeResult<u64> {
        if self.entries(directory)?.contains_key(name) {
            return Err(Refusal(libc::EEXIST));
        }
        let number = self.next;
        self.next += 1;
        let (content, mode) = node;
        self.nodes.insert(number, Node { content, mode, opens: 0, pending: None });
        self.entries_mut(directory)?.insert(name.to_owned(), number);
        Ok(number)
    }

    pub fn opened(&mut self, number: u64) -> TreeResult<()> {
        self.node_mut(number)?.opens += 1;
        Ok(())
    }

    /// The last descriptor of a deleted file deletes it at last.
    pub fn closed(&mut self, number: u64) {
        let Ok(node) = self.node_mut(number) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return;
        }
        let hidden = hidden_name(number);
        let directories = self.nodes.values_mut().filter_map(|node| match &mut node.content {
            Content::Directory(entries) => Some(entries),
            Content::File { .. } => None,
        });
        let removed = directories.filter_map(|entries| entries.remove(&hidden)).count();
        if removed > 0 {
            self.nodes.remove(&number);
        }
    }

    pub fn remove(&mut self, directory: u64, name: &OsStr) -> TreeResult<()> {
        let number = self.child(directory, name)?;
        let node = self.node(number)?;
        if matches!(&node.content, Content::Directory(entries) if !entries.is_empty()) {
            return Err(Refusal(libc::ENOTEMPTY));
        }
        let is_open = node.opens > 0 && !node.is_directory();
        let entries = self.entries_mut(directory)?;
        entries.remove(name);
        if is_open {
            entries.insert(hidden_name(number), number);
        } else {
            self.nodes.remove(&number);
        }
        Ok(())
    }

    pub fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> TreeResult<()> {
        let number = self.child(from.0, from.1)?;
        match self.child(to.0, to.1) {
            Ok(same) if same == number => return Ok(()),
            Ok(_) => self.remove(to.0, to.1)?,
            Err(_) => {}
        }
        self.entries_mut(from.0)?.remove(from.1);
        self.entries_mut(to.0)?.insert(to.1.to_owned(), number);
        Ok(())
    }

    pub fn read(&self, number: u64, at: u64, len: u64) -> TreeResult<Vec<u8>> {
        let Content::File { pieces, len: end } = &self.node(number)?.content else {
            return Err(Refusal(libc::EISDIR));
        };
        let len = len.min(end.saturating_sub(at));
        let mut bytes = vec![0; len as usize];
        for (piece, within, part) in parts(at, len) {
            if let Some(found) = pieces.get(&piece) {
                bytes[part.clone()].copy_from_slice(&found[within..within + part.len()]);
            }
        }
        Ok(bytes)
    }

    pub fn write(&mut self, number: u64, at: u64, bytes: &[u8]) -> TreeResult<()> {
        let (free, loses) = (self.capacity.saturating_sub(self.occupied()), self.loses_writes);
        let full_at = self.full_at;
        let node = self.node_mut(number)?;
        let Content::File { pieces, len } = &mut node.content else {
            return Err(Refusal(libc::EISDIR));
        };
        let parts = parts(at, bytes.len() as u64);
        let wanted = parts.iter().filter(|(piece, ..)| !pieces.contains_key(piece)).count() as u64;
        let fits = wanted * PIECE <= free;
        if !fits && full_at == FullAt::Write {
            return Err(Refusal(libc::ENOSPC));
        }
        *len = (*len).max(at + bytes.len() as u64);
        if loses || !fits {
            node.pending = Some(Refusal(if loses { libc::EIO } else { libc::ENOSPC }));
            return Ok(());
        }
        for (piece, within, part) in parts {
            let target = pieces.entry(piece).or_insert_with(|| vec![0; PIECE as usize].into());
            target[within..within + part.len()].copy_from_slice(&bytes[part]);
        }
        Ok(())
    }

    /// Makes what was written durable, or returns what became of it.
    pub fn sync(&mut self, number: u64) -> TreeResult<()> {
        self.node_mut(number)?.pending.take().map_or(Ok(()), Err)
    }

    pub fn set_len(&mut self, number: u64, new: u64) -> TreeResult<()> {
        let Content::File { pieces, len } = &mut self.node_mut(number)?.content else {
            return Err(Refusal(libc::EISDIR));
        };
        if new < *len {
            pieces.retain(|piece, _| piece * PIECE < new);
            if let Some(last) = pieces.get_mut(&(new / PIECE)) {
                last[(new % PIECE) as usize..].fill(0);
            }
        }
        *len = new;
        Ok(())
    }

    fn node_mut(&mut self, number: u64) -> TreeResult<&mut Node> {
        self.nodes.get_mut(&number).ok_or(Refusal(libc::ESTALE))
    }

    fn entries_mut(&mut self, directory: u64) -> TreeResult<&mut BTreeMap<OsString, u64>> {
        match &mut self.node_mut(directory)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File { .. } => Err(Refusal(libc::ENOTDIR)),
        }
    }
}

fn hidden_name(number: u64) -> OsString {
    OsString::from(format!(".nfs{number:016x}"))
}

/// The parts of a range: number of the piece, offset in it, and the part of the range.
fn parts(at: u64, len: u64) -> Vec<(u64, usize, std::ops::Range<usize>)> {
    let end = at + len;
    (at / PIECE..end.div_ceil(PIECE))
        .map(|piece| {
            let (from, to) = (at.max(piece * PIECE), end.min((piece + 1) * PIECE));
            (piece, (from % PIECE) as usize, (from - at) as usize..(to - at) as usize)
        })
        .collect()
}
