//! A simulated link between this network namespace and another: two TUN devices, and threads that carry packets from one to the
//! other, late, slower, and not all of them. The kernels' own TCP is at both ends.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::network::pipe::{Link, Pipe};
use crate::party::network_bytes;
use crate::{shell, sys};

/// The addresses of both ends: a network that RFC 2544 reserves for benchmarks.
const HERE: &str = "198.18.0.1/30";
const THERE: &str = "198.18.0.2/30";
/// The address of the other end, where the servers are.
pub const SERVER: &str = "198.18.0.2";
const MTU: &str = "1500";
/// Of the names of network namespaces; the number of the process follows.
const PREFIX: &str = "cdi-bench-";
/// Seeds of the lost packets, to the server and from it.
const SEEDS: [u64; 2] = [1, 2];
/// How often a thread that waits for packets looks whether it is to end.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The other network namespace. Removed when dropped, with its end of the link.
pub struct Namespace(String);

impl Namespace {
    /// # Errors
    /// When it cannot be created: it takes root.
    pub fn new() -> Result<Self> {
        Self::remove_abandoned()?;
        let name = format!("{PREFIX}{}", process::id());
        shell::output("ip", &["netns", "add", &name])?;
        let made = Self(name);
        shell::output("ip", &["-n", &made.0, "link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// Removes those of benchmarks that were killed.
    fn remove_abandoned() -> Result<()> {
        let names = shell::output("ip", &["netns", "list"])?;
        let names = names.lines().filter_map(|line| line.split_whitespace().next());
        for name in names {
            let owner = name.strip_prefix(PREFIX);
            if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                shell::output("ip", &["netns", "delete", name])?;
            }
        }
        Ok(())
    }

    /// The file that `nsenter --net=` takes.
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = shell::output("ip", &["netns", "delete", &self.0]) {
            eprintln!("bench: {error:#}");
        }
    }
}

/// The link. It is gone when dropped.
pub struct Tunnel {
    /// The device of this end.
    here: String,
    threads: Vec<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
}

impl Tunnel {
    /// Connects this namespace and `other`.
    ///
    /// # Errors
    /// When the devices cannot be created: it takes root and `/dev/net/tun`.
    pub fn new(link: Link, other: &Namespace) -> Result<Self> {
        let name = |end: char| format!("cdib{end}{}", process::id());
        let (here, there) = (name('h'), name('s'));
        let ends = [open(&here)?, open(&there)?];
        shell::output("ip", &["link", "set", &there, "netns", &other.0])?;
        for (within, device, address) in
            [(&[][..], &here, HERE), (&["-n", &other.0][..], &there, THERE)]
        {
            let ip = |args: &[&str]| shell::output("ip", &[within, args].concat());
            ip(&["address", "add", address, "dev", device])?;
            ip(&["link", "set", device, "mtu", MTU, "up"])?;
        }
        let is_ending = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let mut threads = Vec::new();
        let [to_here, to_there] = SEEDS.map(|seed| Pipe::new(link, seed));
        let [here, there] = ends.map(Arc::new);
        for (from, to, pipe) in [(&here, &there, to_there), (&there, &here, to_here)] {
            let (sender, receiver) = mpsc::channel();
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let ending = Arc::clone(&is_ending);
            threads.push(thread::spawn(move || receive(&from, pipe, began, &sender, &ending)));
            threads.push(thread::spawn(move || deliver(&to, began, &receiver)));
        }
        Ok(Self { here: name('h'), threads, is_ending })
    }

    /// Bytes that were sent in both directions, with the headers of IP and TCP.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub fn bytes(&self) -> Result<u64> {
        Ok(network_bytes(&self.here, "tx")? + network_bytes(&self.here, "rx")?)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("bench: a thread of the simulated link panicked");
            }
        }
    }
}

fn open(name: &str) -> Result<File> {
    sys::open_tun(name).with_context(|| format!("cannot create the TUN device {name}"))
}

struct Packet {
    arrives_at: Duration,
    bytes: Box<[u8]>,
}

/// Takes packets from a device until the link ends.
fn receive(from: &File, mut pipe: Pipe, began: Instant, to: &Sender<Packet>, ending: &AtomicBool) {
    let mut buffer = [0; 1 << 16];
    while !ending.load(Ordering::Relaxed) {
        match { from }.read(&mut buffer) {
            Ok(len) => {
                let Some(arrives_at) = pipe.arrival(began.elapsed(), len) else { continue };
                // The receiver ends after this sender.
                let _ = to.send(Packet { arrives_at, bytes: buffer[..len].into() });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // After an error the next read reports it.
                let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&LOOK_EVERY));
            }
            // The device is gone.
            Err(_) => return,
        }
    }
}

/// Gives packets to a device when they are due. One that the device refuses is lost, as on a network.
fn deliver(mut to: &File, began: Instant, from: &Receiver<Packet>) {
    for packet in from {
        if let Some(wait) = packet.arrives_at.checked_sub(began.elapsed()) {
            thread::sleep(wait);
        }
        let _ = to.write(&packet.bytes);
    }
}
