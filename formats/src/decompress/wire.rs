//! The compressed bytes as containers read them: with a position, and with a way back.

use std::io::{self, BufRead};

use crate::Error;

/// Bytes that were taken from the input but not used yet, and the position of the first unused byte.
#[derive(Default)]
pub(crate) struct Ahead {
    bytes: Vec<u8>,
    /// How many of `bytes` are used.
    used: usize,
    at: u64,
}

impl Ahead {
    pub(crate) fn beginning_at(at: u64) -> Self {
        Self { at, ..Self::default() }
    }

    /// The position of the next byte, from the beginning of the compressed stream.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Puts back the last `bytes` taken.
    pub(crate) fn put_back(&mut self, mut bytes: Vec<u8>) {
        self.at -= bytes.len() as u64;
        bytes.extend_from_slice(self.rest());
        self.bytes = bytes;
        self.used = 0;
    }
}

/// What was put back, followed by the input.
pub(crate) struct Wire<'a> {
    ahead: &'a mut Ahead,
    input: &'a mut dyn BufRead,
}

impl<'a> Wire<'a> {
    pub(crate) fn new(ahead: &'a mut Ahead, input: &'a mut dyn BufRead) -> Self {
        Self { ahead, input }
    }

    /// The position of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.ahead.at
    }

    /// The next bytes, some of them at least. Empty only at the end.
    pub(crate) fn fill(&mut self) -> io::Result<&[u8]> {
        if !self.ahead.rest().is_empty() {
            return Ok(self.ahead.rest());
        }
        fill(self.input)
    }

    /// Moves on by `n` bytes that [`fill`](Self::fill) or [`peek`](Self::peek) showed.
    pub(crate) fn consume(&mut self, n: usize) {
        let ahead = self.ahead.rest().len().min(n);
        self.ahead.used += ahead;
        if self.ahead.rest().is_empty() {
            self.ahead.used = 0;
            self.ahead.bytes = Vec::new(); // it may have held a whole part that was put back
        }
        self.input.consume(n - ahead);
        self.ahead.at += n as u64;
    }

    /// The next `n` bytes without moving on, or fewer where the end is near. For headers: `n` is small.
    pub(crate) fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
        if self.ahead.used > 0 {
            self.ahead.bytes.drain(..self.ahead.used);
            self.ahead.used = 0;
        }
        while self.ahead.bytes.len() < n {
            let more = fill(self.input)?;
            if more.is_empty() {
                break;
            }
            let missing = (n - self.ahead.bytes.len()).min(more.len());
            self.ahead.bytes.extend_from_slice(&more[..missing]);
            self.input.consume(missing);
        }
        Ok(&self.ahead.bytes[..n.min(self.ahead.bytes.len())])
    }

    pub(crate) fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.fill()?.is_empty())
    }

    /// Appends the next `n` bytes to `into`. The caller bounds `n`.
    pub(crate) fn take(
        &mut self,
        mut n: usize,
        into: &mut Vec<u8>,
        what: &'static str,
    ) -> io::Result<()> {
        while n > 0 {
            let bytes = self.fill()?;
            let some = bytes.len().min(n);
            into.extend_from_slice(&bytes[..some]);
            self.step(some, what)?;
            n -= some;
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        let mut filled = 0;
        while filled < N {
            let bytes = self.fill()?;
            let some = bytes.len().min(N - filled);
            array[filled..filled + some].copy_from_slice(&bytes[..some]);
            self.step(some, what)?;
            filled += some;
        }
        Ok(array)
    }

    /// Passes over `n` bytes.
    pub(crate) fn skip(&mut self, mut n: u64, what: &'static str) -> io::Result<()> {
        while n > 0 {
            let some = self.fill()?.len().min(usize::try_from(n).unwrap_or(usize::MAX));
            self.step(some, what)?;
            n -= some as u64;
        }
        Ok(())
    }

    /// Passes over zero bytes, and returns how many there were before something else or the end.
    pub(crate) fn skip_zeroes(&mut self) -> io::Result<u64> {
        let mut zeroes = 0;
        loop {
            let bytes = self.fill()?;
            let some = bytes.iter().take_while(|byte| **byte == 0).count();
            let goes_on = some > 0 && some == bytes.len();
            self.consume(some);
            zeroes += some as u64;
            if !goes_on {
                return Ok(zeroes);
            }
        }
    }

    /// Puts back the last `bytes` taken.
    pub(crate) fn unread(&mut self, bytes: Vec<u8>) {
        self.ahead.put_back(bytes);
    }

    /// As [`consume`](Self::consume), where 0 bytes mean that the input ended inside of `what`.
    fn step(&mut self, n: usize, what: &'static str) -> io::Result<()> {
        if n == 0 {
            return Err(self.truncated(what));
        }
        self.consume(n);
        Ok(())
    }

    /// The error for an end in the middle of `what`: what is ahead is all there is.
    pub(crate) fn truncated(&self, what: &'static str) -> io::Error {
        Error::Truncated { what, at: self.at() + self.ahead.rest().len() as u64 }.into()
    }

    /// The error for bytes of `what` that make no sense.
    pub(crate) fn corrupt(&self, what: &'static str, because: &'static str) -> io::Error {
        Error::Corrupt { what, at: self.at(), because }.into()
    }
}

/// As [`BufRead::fill_buf`], however often that is interrupted.
fn fill(input: &mut dyn BufRead) -> io::Result<&[u8]> {
    let ended = loop {
        match input.fill_buf() {
            Ok(bytes) => break bytes.is_empty(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    };
    // Calling again costs nothing while there are bytes; at the end it might read once more.
    if ended { Ok(&[]) } else { input.fill_buf() }
}
