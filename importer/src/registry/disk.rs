//! The disk in a container image as a source: its bytes stream out of the layer while the layer comes.
//!
//! ```text
//! blob, in parallel ranges ─► digest, decompress ─► tar ─► entry disk/… ─► bounded queue ─► pipeline
//!                             (thread "layer", the hash on one of its own)
//! ```

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bytes::Bytes;
use formats::sniff::{SNIFF_BYTES, Sniffed, sniff};
use formats::tar::Archive;
use parking_lot::Mutex;
use pipeline::{ByteStream, Pool, Source, SourceError, SourceFacts, Wire, decompress};

use super::image::Image;
use super::image_error::ContainerImageError;
use super::layer::{EntryKind, Hidden, examine_entry, several};
use super::manifest::{Contents, Descriptor};
use super::reference::Location;
use super::store::same;
use crate::error::Error;
use crate::receive_buffer::ReceiveBuffer;
use crate::receive_limit::ReceiveLimit;
use crate::web::HttpOptions;

/// What is passed on at a time: large enough to make little of a transfer, small enough for a cache.
const CHUNK_LEN: usize = 256 << 10;
/// Chunks in flight: one core decompresses while the others decode and write.
const CHUNKS_WAITING: usize = 8;
/// Of a name that cannot be understood.
const NAME_SHOWN_MAX: usize = 256;
/// Between a decompressor and the tar, for headers.
const BETWEEN: usize = 64 << 10;

/// The disk in a container image, or stored as an artifact, of a registry or an OCI archive.
pub struct ContainerDisk {
    facts: SourceFacts,
    info: ImageInfo,
    receive_limit: ReceiveLimit,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageInfo {
    /// Of the manifest, `sha256:…`.
    pub digest: String,
    /// As the image states it; empty if it does not.
    pub architecture: String,
    /// `KEY=VALUE`, as the image's config has them. See [`labels`](crate::labels).
    pub environment: Vec<String>,
    /// The disk's name in the image; `None` where the image is the disk.
    pub file: Option<String>,
}

struct Shared {
    image: Arc<Image>,
    location: DiskLocation,
    name: String,
    /// The layer with the disk, read up to the disk's first byte: for the first reader.
    prepared: Mutex<Option<Receiver<LayerMessage>>>,
}

enum DiskLocation {
    Layer { layer: Descriptor, above: Hidden },
    Blob(Descriptor),
}

/// From the reader of a layer.
enum LayerMessage {
    /// The disk begins: its name and length.
    Disk(String, u64),
    Bytes(Bytes),
    /// The layer is complete and verified, and held the disk.
    Complete,
    /// The layer is complete and verified, and held none; what layers below may not show.
    Nothing(Hidden),
    Failed(Error),
}

impl ContainerDisk {
    /// Finds the disk of `docker://…` or `oci-archive:…`. Layers are looked through from the top, and no further than to
    /// the one that has it. Blocks.
    ///
    /// # Errors
    /// When the registry cannot be reached or refuses, or the image has no disk that can be used.
    pub fn open(location: &str, options: &HttpOptions) -> Result<Self, Error> {
        let parsed = Location::parse(location).ok_or_else(|| {
            let name = location.chars().take(NAME_SHOWN_MAX).collect();
            let because = if location.contains(':') {
                "unknown transport"
            } else {
                "expected colon-separated transport:reference"
            };
            ContainerImageError::Name { name, because }
        })??;
        let name = match &parsed {
            Location::Registry(reference) => reference.to_string(),
            Location::Archive(_) => location.to_owned(),
        };
        let image = Arc::new(Image::open(&parsed, options)?);
        let mut info = ImageInfo {
            digest: image.digest.to_string(),
            architecture: image.config.architecture.clone(),
            environment: image.config.environment.clone(),
            file: None,
        };
        let (location, prepared, length) = match &image.contents {
            Contents::Disk(blob) => (DiskLocation::Blob(blob.clone()), None, blob.size),
            Contents::Layers(layers) => {
                let (location, prepared, file, length) = find(&image, layers, &name)?;
                info.file = Some(file);
                (location, Some(prepared), length)
            }
        };
        let facts = SourceFacts {
            name: name.clone(),
            length: Some(length),
            ranges: false, // its bytes have to be hashed, and most of them are compressed
            validator: None,
            streams_max: 1,
        };
        let shared = Shared { image, location, name, prepared: Mutex::new(prepared) };
        let receive_limit = options.receive_limit.clone();
        Ok(Self { facts, info, receive_limit, shared: Arc::new(shared) })
    }

    pub fn info(&self) -> &ImageInfo {
        &self.info
    }
}

impl Source for ContainerDisk {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let state = if (at, end) == (0, None) { ReadState::New } else { ReadState::Refused };
        Box::new(DiskStream { shared: Arc::clone(&self.shared), state })
    }

    fn limit_receive_memory(&self, bytes: usize) {
        const DECOMPRESSED: usize = CHUNKS_WAITING * CHUNK_LEN;
        self.receive_limit.set(bytes.saturating_sub(DECOMPRESSED));
    }
}

impl fmt::Debug for ContainerDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(formatter)
    }
}

/// Looks through layers from the top.
fn find(
    image: &Arc<Image>,
    layers: &[Descriptor],
    name: &str,
) -> Result<(DiskLocation, Receiver<LayerMessage>, String, u64), Error> {
    let mut above = Hidden::default();
    for layer in layers {
        let messages = start(image, layer, &above, name)?;
        match messages.recv() {
            Ok(LayerMessage::Disk(file, length)) => {
                let location = DiskLocation::Layer { layer: layer.clone(), above };
                return Ok((location, messages, file, length));
            }
            Ok(LayerMessage::Nothing(hidden)) if hidden.everything() => break,
            Ok(LayerMessage::Nothing(hidden)) => above = hidden,
            Ok(LayerMessage::Failed(error)) => return Err(error),
            Ok(LayerMessage::Bytes(_) | LayerMessage::Complete) | Err(_) => {
                return Err(Error::Vanished { name: name.to_owned() });
            }
        }
    }
    Err(ContainerImageError::NoDisk.into())
}

/// Reads a layer on a thread of its own.
fn start(
    image: &Arc<Image>,
    layer: &Descriptor,
    above: &Hidden,
    name: &str,
) -> Result<Receiver<LayerMessage>, Error> {
    let (sender, messages) = sync_channel(CHUNKS_WAITING);
    let (image, layer, above) = (Arc::clone(image), layer.clone(), above.clone());
    let name = name.to_owned();
    let work = move || {
        let last = match read(&image, &layer, above, &name, &sender) {
            Ok(last) => last,
            Err(LayerError::Failed(error)) => LayerMessage::Failed(error),
            Err(LayerError::Unwanted) => return,
        };
        let _ = sender.send(last); // the receiver may have been dropped
    };
    let thread = std::thread::Builder::new().name("layer".into()).spawn(work);
    thread.map_err(|error| Error::Option { what: format!("cannot start a thread: {error}") })?;
    Ok(messages)
}

/// Why a layer is not read to its end.
enum LayerError {
    Failed(Error),
    /// The reader has been dropped.
    Unwanted,
}

impl<E: Into<Error>> From<E> for LayerError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Reads a layer, sends the disk if there is one, and returns the last message.
fn read(
    image: &Image,
    layer: &Descriptor,
    mut above: Hidden,
    name: &str,
    sender: &SyncSender<LayerMessage>,
) -> Result<LayerMessage, LayerError> {
    let mut wire = wire(image, "layer", layer)?;
    let disk = {
        let mut tar = Archive::new(plain(&mut wire).map_err(|error| failed(error, name))?);
        walk(&mut tar, &mut above, name, sender)?
    };
    // What follows the tar, if anything, belongs to the blob all the same.
    let found = wire.finish().map_err(|error| failed(error, name))?;
    same("layer", &layer.digest, found.unwrap_or(layer.digest))?;
    Ok(if disk { LayerMessage::Complete } else { LayerMessage::Nothing(above) })
}

fn walk(
    tar: &mut Archive<impl Read>,
    above: &mut Hidden,
    name: &str,
    sender: &SyncSender<LayerMessage>,
) -> Result<bool, LayerError> {
    let mut below = above.clone();
    let mut disk = false;
    while let Some(entry) = tar.next_entry().map_err(|error| failed(error, name))? {
        match examine_entry(&entry, above, &mut below)? {
            EntryKind::Nothing => {}
            EntryKind::Disk if disk => return Err(several().into()),
            EntryKind::Disk => {
                disk = true;
                let file = String::from_utf8_lossy(&entry.path).into_owned();
                send_disk(tar, file, name, sender)?;
            }
        }
    }
    *above = below;
    Ok(disk)
}

fn send_disk(
    tar: &mut Archive<impl Read>,
    file: String,
    name: &str,
    sender: &SyncSender<LayerMessage>,
) -> Result<(), LayerError> {
    let send = |message| sender.send(message).map_err(|_| LayerError::Unwanted);
    let pool = Pool::unlimited(CHUNK_LEN, CHUNKS_WAITING + 2);
    let mut first = true;
    loop {
        let left = tar.left();
        let mut buffer = ReceiveBuffer::new(&pool, 0);
        while !buffer.spare().is_empty() {
            match tar.read(buffer.spare()) {
                Ok(0) => break,
                Ok(count) => buffer.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error, name).into()),
            }
        }
        if first {
            first = false;
            if let Sniffed::Compressed(compression) = sniff(buffer.as_ref()) {
                let compression = compression.to_string();
                return Err(ContainerImageError::CompressedDisk { name: file, compression }.into());
            }
            send(LayerMessage::Disk(file.clone(), left))?;
        }
        if buffer.filled() == 0 {
            return Ok(());
        }
        send(LayerMessage::Bytes(buffer.freeze()))?;
    }
}

/// A blob, hashed while it is read.
fn wire(image: &Image, what: &'static str, blob: &Descriptor) -> Result<Wire, Error> {
    let stream = image.store.blob(what, blob)?;
    Wire::new(stream, &Arc::default(), Some(blob.digest.hasher()))
        .map_err(|error| Error::Option { what: error.to_string() })
}

/// Undoes the compression that the content shows.
fn plain<'a>(wire: &'a mut Wire) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut head = Vec::new();
    wire.take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
    let seen = sniff(&head);
    let whole: Box<dyn BufRead + Send + 'a> = Box::new(Cursor::new(head).chain(wire));
    Ok(match seen {
        Sniffed::Compressed(kind) => {
            let decoded = decompress(kind, whole).map_err(io::Error::other)?;
            // Headers come out of the buffer, large reads past it: a decoder is faster with large ones.
            Box::new(BufReader::with_capacity(BETWEEN, decoded))
        }
        Sniffed::Image(_) | Sniffed::Foreign(_) => Box::new(whole),
    })
}

/// An error passing through a decoder, taken apart.
fn failed(error: io::Error, name: &str) -> Error {
    match pipeline::explain(error, name) {
        pipeline::Error::Source { source, .. } => Error::of_source(source),
        pipeline::Error::Decode { source, .. } => ContainerImageError::Layer(source).into(),
        other => Error::Option { what: other.to_string() },
    }
}

/// The disk's bytes.
struct DiskStream {
    shared: Arc<Shared>,
    state: ReadState,
}

enum ReadState {
    New,
    Layer(Receiver<LayerMessage>),
    Blob(Box<Wire>, Descriptor),
    Complete,
    /// A part was requested, or reading failed.
    Refused,
}

impl DiskStream {
    fn open_disk(&self) -> Result<ReadState, Error> {
        let Shared { image, location, name, prepared } = &*self.shared;
        if let Some(messages) = prepared.lock().take() {
            return Ok(ReadState::Layer(messages));
        }
        match location {
            DiskLocation::Blob(blob) => {
                Ok(ReadState::Blob(Box::new(wire(image, "disk", blob)?), blob.clone()))
            }
            DiskLocation::Layer { layer, above } => {
                let messages = start(image, layer, above, name)?;
                match messages.recv() {
                    Ok(LayerMessage::Disk(..)) => Ok(ReadState::Layer(messages)),
                    Ok(LayerMessage::Failed(error)) => Err(error),
                    _ => Err(Error::Vanished { name: name.clone() }),
                }
            }
        }
    }

    fn read_next(&mut self) -> Result<Option<Bytes>, Error> {
        let name = || self.shared.name.clone();
        match std::mem::replace(&mut self.state, ReadState::Refused) {
            ReadState::New => {
                self.state = self.open_disk()?;
                self.read_next()
            }
            ReadState::Layer(messages) => match messages.recv() {
                Ok(LayerMessage::Bytes(bytes)) => {
                    self.state = ReadState::Layer(messages);
                    Ok(Some(bytes))
                }
                Ok(LayerMessage::Complete) => {
                    self.state = ReadState::Complete;
                    Ok(None)
                }
                Ok(LayerMessage::Failed(error)) => Err(error),
                Ok(LayerMessage::Disk(..) | LayerMessage::Nothing(_)) | Err(_) => {
                    Err(Error::Vanished { name: name() })
                }
            },
            ReadState::Blob(mut wire, blob) => {
                let chunk = wire.next_chunk().map_err(|error| failed(error, &name()))?;
                if chunk.is_some() {
                    self.state = ReadState::Blob(wire, blob);
                    return Ok(chunk);
                }
                let found = wire.finish().map_err(|error| failed(error, &name()))?;
                same("disk", &blob.digest, found.unwrap_or(blob.digest))?;
                self.state = ReadState::Complete;
                Ok(None)
            }
            ReadState::Complete => {
                self.state = ReadState::Complete;
                Ok(None)
            }
            ReadState::Refused => Err(Error::OnePass { name: name() }),
        }
    }
}

impl ByteStream for DiskStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.read_next().map_err(Into::into)
    }
}
