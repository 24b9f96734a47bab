//! Serves a [`Tree`] to the kernel, by the rules of a network file system.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use super::tree::{Content, Node, ROOT, Refusal, Tree, TreeResult};
use super::{DirectIo, NetworkRules};

/// The kernel asks again each time: nothing it knows is out of date.
const TTL: Duration = Duration::ZERO;
/// The anonymous user, to whom `root_squash` gives everything.
const ANONYMOUS: u32 = 65534;
/// Bytes of a transfer.
const TRANSFER: u32 = 1 << 20;

pub struct Server {
    rules: NetworkRules,
    tree: Arc<Mutex<Tree>>,
}

impl Server {
    pub fn new(rules: NetworkRules, tree: Arc<Mutex<Tree>>) -> Self {
        Self { rules, tree }
    }

    fn mode(&self, mode: u32, umask: u32) -> u16 {
        if self.rules.changes_modes { (mode & !umask & 0o7777) as u16 } else { 0o666 }
    }

    fn refuses(&self, flags: i32, direct_io: DirectIo) -> bool {
        flags & libc::O_DIRECT != 0 && self.rules.direct_io == direct_io
    }

    fn made(&self, parent: INodeNo, name: &OsStr, node: (Content, u16)) -> TreeResult<FileAttr> {
        let mut tree = self.tree.lock();
        let number = tree.create(parent.0, name, node)?;
        tree.node(number).map(|node| attributes(number, node))
    }

    fn change(&self, number: u64, change: Change) -> TreeResult<FileAttr> {
        let mut tree = self.tree.lock();
        if change.owner || change.mode.is_some() && !self.rules.changes_modes {
            return Err(Refusal(libc::EPERM));
        }
        if let Some(mode) = change.mode {
            tree.set_mode(number, (mode & 0o7777) as u16)?;
        }
        if let Some(len) = change.len {
            tree.set_len(number, len)?;
        }
        tree.node(number).map(|node| attributes(number, node))
    }
}

/// What `setattr` wants.
struct Change {
    mode: Option<u32>,
    owner: bool,
    len: Option<u64>,
}

fn attributes(number: u64, node: &Node) -> FileAttr {
    let directory = node.is_directory();
    FileAttr {
        ino: INodeNo(number),
        size: node.len(),
        blocks: node.occupied() / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if directory { FileType::Directory } else { FileType::RegularFile },
        perm: node.mode,
        nlink: if directory { 2 } else { 1 },
        uid: ANONYMOUS,
        gid: ANONYMOUS,
        rdev: 0,
        blksize: TRANSFER,
        flags: 0,
    }
}

fn reply_empty(reply: ReplyEmpty, answer: TreeResult<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(refusal) => reply.error(refusal.into()),
    }
}

fn reply_entry(reply: ReplyEntry, answer: TreeResult<FileAttr>) {
    match answer {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(refusal) => reply.error(refusal.into()),
    }
}

fn reply_attr(reply: ReplyAttr, answer: TreeResult<FileAttr>) {
    match answer {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(refusal) => reply.error(refusal.into()),
    }
}

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = self.tree.lock();
        let found = tree.child(parent.0, name);
        reply_entry(
            reply,
            found.and_then(|number| tree.node(number).map(|node| attributes(number, node))),
        );
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let tree = self.tree.lock();
        reply_attr(reply, tree.node(number.0).map(|node| attributes(number.0, node)));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        len: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, owner: uid.is_some() || gid.is_some(), len };
        reply_attr(reply, self.change(number.0, change));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = if self.rules.changes_modes { self.mode(mode, umask) } else { 0o777 };
        reply_entry(reply, self.made(parent, name, (Content::Directory(BTreeMap::new()), mode)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.refuses(flags, DirectIo::RefusedAtOpen) {
            return reply.error(Errno::EINVAL);
        }
        let file = Content::File { pieces: BTreeMap::new(), len: 0 };
        let created = self.made(parent, name, (file, self.mode(mode, umask)));
        let opened = created
            .and_then(|attributes| self.tree.lock().opened(attributes.ino.0).map(|()| attributes));
        match opened {
            Ok(attributes) => {
                let (handle, flags) = (FileHandle(0), FopenFlags::empty());
                reply.created(&TTL, &attributes, Generation(0), handle, flags);
            }
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.refuses(flags.0, DirectIo::RefusedAtOpen) {
            return reply.error(Errno::EINVAL);
        }
        match self.tree.lock().opened(number.0) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::empty()),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.tree.lock().read(number.0, offset, len.into());
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.refuses(flags.0, DirectIo::RefusedAtWrite) {
            return reply.error(Errno::EINVAL);
        }
        let written = self.tree.lock().write(number.0, offset, bytes);
        match written {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn flush(&self, _: &Request, number: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply_empty(reply, self.tree.lock().sync(number.0));
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.tree.lock().sync(number.0));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let refusal = Refusal(libc::EINVAL);
        reply_empty(reply, if self.rules.syncs_directories { Ok(()) } else { Err(refusal) });
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.tree.lock().closed(number.0);
        reply.ok();
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.tree.lock().remove(parent.0, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.tree.lock().remove(parent.0, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        // NFS knows neither an exchange nor "unless it exists".
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = self.tree.lock().rename((parent.0, name), (new_parent.0, new_name));
        reply_empty(reply, renamed);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.tree.lock();
        let entries = match tree.entries(number.0) {
            Ok(entries) => entries,
            Err(refusal) => return reply.error(refusal.into()),
        };
        let this = (".".into(), number.0);
        let all = [this, ("..".into(), ROOT)];
        let all = all.into_iter().chain(entries.iter().map(|(name, child)| (name.clone(), *child)));
        for (index, (name, child)) in all.enumerate().skip(offset as usize) {
            let directory = tree.node(child).is_ok_and(Node::is_directory);
            let kind = if directory { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(child), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let tree = self.tree.lock();
        let transfer = u64::from(TRANSFER);
        let blocks = tree.capacity() / transfer;
        let free = tree.capacity().saturating_sub(tree.occupied()) / transfer;
        reply.statfs(blocks, free, free, 1 << 20, 1 << 20, TRANSFER, 255, TRANSFER);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }
}
