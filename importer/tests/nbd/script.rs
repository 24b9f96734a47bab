//! An NBD server with replies that a test chooses.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

/// What an option is answered with, instead of what is right.
pub type OptionHook = fn(number: u32) -> Option<Vec<u8>>;
/// The same for a command: its number among all, and itself.
pub type CommandHook = fn(usize, &Command) -> Act;

/// A command that came.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    pub kind: u16,
    pub handle: u64,
    pub at: u64,
    pub len: u32,
}

/// What to do about a command.
pub enum Act {
    Right,
    Reply(Vec<u8>),
    Close,
}

/// A disk, and how it is served.
#[derive(Clone)]
pub struct Script {
    pub disk: Arc<Vec<u8>>,
    pub greeting: Vec<u8>,
    pub option: OptionHook,
    pub command: CommandHook,
    /// Bytes that the export has, on the n-th connection.
    pub size: fn(usize, u64) -> u64,
}

/// A script that runs.
pub struct Running {
    directory: TempDir,
    pub connections: Arc<AtomicUsize>,
    pub commands: Arc<AtomicUsize>,
}

impl Script {
    pub fn new(disk: Vec<u8>) -> Self {
        let greeting = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
        Self {
            disk: Arc::new(disk),
            greeting,
            option: |_| None,
            command: |_, _| Act::Right,
            size: |_, size| size,
        }
    }

    /// Listens until the end of the test process.
    pub fn start(self) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let running = Running { directory, connections: Arc::default(), commands: Arc::default() };
        let (connections, commands) =
            (Arc::clone(&running.connections), Arc::clone(&running.commands));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (script, commands) = (self.clone(), Arc::clone(&commands));
                let number = connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || script.serve(stream.unwrap(), number, &commands));
            }
        });
        running
    }

    /// Ends with the connection, whatever ends that.
    fn serve(&self, mut stream: UnixStream, number: usize, commands: &AtomicUsize) -> Option<()> {
        stream.write_all(&self.greeting).ok()?;
        read::<4>(&mut stream)?;
        while self.option(&mut stream, number)? {}
        loop {
            let bytes: [u8; 28] = read(&mut stream)?;
            let part = |at: usize| bytes[at..at + 8].try_into().map(u64::from_be_bytes).unwrap();
            let command = Command {
                kind: u16::from_be_bytes([bytes[6], bytes[7]]),
                handle: part(8),
                at: part(16),
                len: u32::from_be_bytes(bytes[24..].try_into().unwrap()),
            };
            if command.kind == 2 {
                return None;
            }
            match (self.command)(commands.fetch_add(1, Ordering::SeqCst), &command) {
                Act::Right => stream.write_all(&self.right(&command)).ok()?,
                Act::Reply(bytes) => stream.write_all(&bytes).ok()?,
                Act::Close => return None,
            }
        }
    }

    /// False once commands follow.
    fn option(&self, stream: &mut UnixStream, connection: usize) -> Option<bool> {
        read::<8>(stream)?;
        let number = u32::from_be_bytes(read(stream)?);
        let len = u32::from_be_bytes(read(stream)?);
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data).ok()?;
        if let Some(answer) = (self.option)(number) {
            stream.write_all(&answer).ok()?;
            return Some(true);
        }
        let answers = match number {
            8 => option_reply(8, 1, &[]),
            10 => {
                let mut context = 7_u32.to_be_bytes().to_vec();
                context.extend(b"base:allocation");
                [option_reply(10, 4, &context), option_reply(10, 1, &[])].concat()
            }
            7 => {
                let size = (self.size)(connection, self.disk.len() as u64);
                [option_reply(7, 3, &export(size, 0x101)), option_reply(7, 1, &[])].concat()
            }
            other => option_reply(other, 0x8000_0001, &[]),
        };
        stream.write_all(&answers).ok()?;
        Some(number != 7)
    }

    /// Data as it is, and the first half of whatever is asked about as zero if it is.
    pub fn right(&self, command: &Command) -> Vec<u8> {
        let range = command.at as usize..command.at as usize + command.len as usize;
        match command.kind {
            0 => data(command, command.at, &self.disk[range]),
            _ => {
                let mut states: Vec<(u32, u32)> = vec![];
                for block in self.disk[range].chunks(4096) {
                    let flags = if block.iter().all(|byte| *byte == 0) { 3 } else { 0 };
                    states.push((block.len() as u32, flags));
                }
                status(command, 7, &states)
            }
        }
    }
}

impl Running {
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.directory.path().join("s").display())
    }
}

fn read<const N: usize>(stream: &mut UnixStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

pub fn export(size: u64, flags: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(size.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes
}

pub fn block_sizes(min: u32, max: u32) -> Vec<u8> {
    let mut bytes = vec![0, 3];
    for size in [min, min.max(4096), max] {
        bytes.extend(size.to_be_bytes());
    }
    bytes
}

pub fn chunk(flags: u16, kind: u16, handle: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(handle.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn data(command: &Command, at: u64, bytes: &[u8]) -> Vec<u8> {
    chunk(1, 1, command.handle, &[&at.to_be_bytes()[..], bytes].concat())
}

pub fn hole(command: &Command, at: u64, len: u32) -> Vec<u8> {
    chunk(1, 2, command.handle, &[&at.to_be_bytes()[..], &len.to_be_bytes()[..]].concat())
}

pub fn status(command: &Command, context: u32, states: &[(u32, u32)]) -> Vec<u8> {
    let mut payload = context.to_be_bytes().to_vec();
    for (len, flags) in states {
        payload.extend(len.to_be_bytes());
        payload.extend(flags.to_be_bytes());
    }
    chunk(1, 5, command.handle, &payload)
}

pub fn failure(handle: u64, number: u32, text: &str) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend((text.len() as u16).to_be_bytes());
    payload.extend(text.as_bytes());
    chunk(1, 0x8001, handle, &payload)
}
