//! The disk in a container image as a source: its bytes stream out of the layer while the layer comes.
//!
//! ```text
//! blob, in parallel ranges ─► digest, decompress ─► tar ─► entry disk/… ─► bounded queue ─► pipeline
//!                             (thread "layer", the hash on one of its own)
//! ```

use std::fmt;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use formats::decompress::{Limits, reader};
use formats::sniff::{SNIFF_BYTES, Sniffed, sniff};
use formats::tar::Archive;
use pipeline::{ByteStream, Pool, Source, SourceError, SourceFacts, Wire};

use super::image::Image;
use super::layer::{Found, Hidden, look, several};
use super::manifest::{Contents, Descriptor};
use super::reference::Location;
use super::store::same;
use super::trouble::ImageTrouble;
use crate::error::Error;
use crate::receive_buffer::ReceiveBuffer;
use crate::receive_limit::ReceiveLimit;
use crate::web::HttpOptions;

/// What is handed over at a time: large enough to make little of a hand-over, small enough for a cache.
const CHUNK_LEN: usize = 256 << 10;
/// Chunks on their way: one core decompresses while the others decode and write.
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

/// What is known of the image beside its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageInfo {
    /// Of the manifest, `sha256:…`.
    pub digest: String,
    /// As the image says it; empty where it does not.
    pub architecture: String,
    /// `KEY=VALUE`, as the image's config has them. See [`labels`](crate::labels).
    pub environment: Vec<String>,
    /// The disk's name in the image; `None` where the image is the disk.
    pub file: Option<String>,
}

struct Shared {
    image: Arc<Image>,
    place: Place,
    name: String,
    /// The layer in which the disk was found, up to its first byte: for whoever reads first.
    prepared: Mutex<Option<Receiver<Message>>>,
}

enum Place {
    Layer { layer: Descriptor, above: Hidden },
    Blob(Descriptor),
}

/// What a reader of a layer says.
enum Message {
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
            let because = match location.contains(':') {
                true => "unknown transport",
                false => "expected colon-separated transport:reference",
            };
            ImageTrouble::Name { name, because }
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
        let (place, prepared, length) = match &image.contents {
            Contents::Disk(blob) => (Place::Blob(blob.clone()), None, blob.size),
            Contents::Layers(layers) => {
                let (place, prepared, file, length) = find(&image, layers, &name)?;
                info.file = Some(file);
                (place, Some(prepared), length)
            }
        };
        let facts = SourceFacts {
            name: name.clone(),
            length: Some(length),
            ranges: false, // its bytes have to be hashed, and most of them are compressed
            validator: None,
            streams_max: 1,
        };
        let shared = Shared { image, place, name, prepared: Mutex::new(prepared) };
        let receive_limit = options.receive_limit.clone();
        Ok(Self { facts, info, receive_limit, shared: Arc::new(shared) })
    }

    /// What is known of the image beside its disk.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }
}

impl Source for ContainerDisk {
    fn facts(&self) -> &SourceFacts {
        &self.facts
    }

    fn open(&self, at: u64, end: Option<u64>) -> Box<dyn ByteStream> {
        let stage = if (at, end) == (0, None) { Stage::New } else { Stage::Refused };
        Box::new(DiskStream { shared: Arc::clone(&self.shared), stage })
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
) -> Result<(Place, Receiver<Message>, String, u64), Error> {
    let mut above = Hidden::default();
    for layer in layers {
        let messages = start(image, layer, &above, name)?;
        match messages.recv() {
            Ok(Message::Disk(file, length)) => {
                let place = Place::Layer { layer: layer.clone(), above };
                return Ok((place, messages, file, length));
            }
            Ok(Message::Nothing(hidden)) if hidden.everything() => break,
            Ok(Message::Nothing(hidden)) => above = hidden,
            Ok(Message::Failed(error)) => return Err(error),
            Ok(Message::Bytes(_) | Message::Complete) | Err(_) => {
                return Err(Error::Vanished { name: name.to_owned() });
            }
        }
    }
    Err(ImageTrouble::NoDisk.into())
}

/// Reads a layer on a thread of its own.
fn start(
    image: &Arc<Image>,
    layer: &Descriptor,
    above: &Hidden,
    name: &str,
) -> Result<Receiver<Message>, Error> {
    let (sender, messages) = sync_channel(CHUNKS_WAITING);
    let (image, layer, above) = (Arc::clone(image), layer.clone(), above.clone());
    let name = name.to_owned();
    let work = move || {
        let last = match read(&image, &layer, above, &name, &sender) {
            Ok(last) => last,
            Err(Stop::Failed(error)) => Message::Failed(error),
            Err(Stop::Unwanted) => return,
        };
        let _ = sender.send(last); // nobody may be there any more
    };
    let thread = std::thread::Builder::new().name("layer".into()).spawn(work);
    thread.map_err(|error| Error::Option { what: format!("cannot start a thread: {error}") })?;
    Ok(messages)
}

/// Why a layer is not read to its end.
enum Stop {
    Failed(Error),
    /// Nobody listens.
    Unwanted,
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Reads a layer, sends the disk if there is one, and returns what is to be said last.
fn read(
    image: &Image,
    layer: &Descriptor,
    mut above: Hidden,
    name: &str,
    sender: &SyncSender<Message>,
) -> Result<Message, Stop> {
    let mut wire = wire(image, "layer", layer)?;
    let disk = {
        let mut tar = Archive::new(plain(&mut wire).map_err(|error| failed(error, name))?);
        walk(&mut tar, &mut above, name, sender)?
    };
    // What follows the tar, if anything, belongs to the blob all the same.
    let found = wire.finish().map_err(|error| failed(error, name))?;
    same("layer", &layer.digest, found.unwrap_or(layer.digest))?;
    Ok(if disk { Message::Complete } else { Message::Nothing(above) })
}

fn walk(
    tar: &mut Archive<impl Read>,
    above: &mut Hidden,
    name: &str,
    sender: &SyncSender<Message>,
) -> Result<bool, Stop> {
    let mut below = above.clone();
    let mut disk = false;
    while let Some(entry) = tar.next_entry().map_err(|error| failed(error, name))? {
        match look(&entry, above, &mut below)? {
            Found::Nothing => {}
            Found::Disk if disk => return Err(several().into()),
            Found::Disk => {
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
    sender: &SyncSender<Message>,
) -> Result<(), Stop> {
    let send = |message| sender.send(message).map_err(|_| Stop::Unwanted);
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
                return Err(ImageTrouble::CompressedDisk { name: file, compression }.into());
            }
            send(Message::Disk(file.clone(), left))?;
        }
        if buffer.filled() == 0 {
            return Ok(());
        }
        send(Message::Bytes(buffer.freeze()))?;
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
            let decoded = reader(kind, whole, Limits::default());
            // Headers come out of the buffer, large reads past it: a decoder likes to write into large ones.
            Box::new(BufReader::with_capacity(BETWEEN, decoded))
        }
        Sniffed::Image(_) | Sniffed::Foreign(_) => Box::new(whole),
    })
}

/// An error on its way through a decoder, taken apart.
fn failed(error: io::Error, name: &str) -> Error {
    match pipeline::explain(error, name) {
        pipeline::Error::Source { source, .. } => Error::of_source(source),
        pipeline::Error::Decode { source, .. } => ImageTrouble::Layer(source).into(),
        other => Error::Option { what: other.to_string() },
    }
}

/// The disk's bytes.
struct DiskStream {
    shared: Arc<Shared>,
    stage: Stage,
}

enum Stage {
    New,
    Layer(Receiver<Message>),
    Blob(Box<Wire>, Descriptor),
    Complete,
    /// A part was asked for, or reading failed.
    Refused,
}

impl DiskStream {
    fn begin(&self) -> Result<Stage, Error> {
        let Shared { image, place, name, prepared } = &*self.shared;
        if let Some(messages) = prepared.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Stage::Layer(messages));
        }
        match place {
            Place::Blob(blob) => {
                Ok(Stage::Blob(Box::new(wire(image, "disk", blob)?), blob.clone()))
            }
            Place::Layer { layer, above } => {
                let messages = start(image, layer, above, name)?;
                match messages.recv() {
                    Ok(Message::Disk(..)) => Ok(Stage::Layer(messages)),
                    Ok(Message::Failed(error)) => Err(error),
                    _ => Err(Error::Vanished { name: name.clone() }),
                }
            }
        }
    }

    fn step(&mut self) -> Result<Option<Bytes>, Error> {
        let name = || self.shared.name.clone();
        match std::mem::replace(&mut self.stage, Stage::Refused) {
            Stage::New => {
                self.stage = self.begin()?;
                self.step()
            }
            Stage::Layer(messages) => match messages.recv() {
                Ok(Message::Bytes(bytes)) => {
                    self.stage = Stage::Layer(messages);
                    Ok(Some(bytes))
                }
                Ok(Message::Complete) => {
                    self.stage = Stage::Complete;
                    Ok(None)
                }
                Ok(Message::Failed(error)) => Err(error),
                Ok(Message::Disk(..) | Message::Nothing(_)) | Err(_) => {
                    Err(Error::Vanished { name: name() })
                }
            },
            Stage::Blob(mut wire, blob) => {
                let chunk = wire.next_chunk().map_err(|error| failed(error, &name()))?;
                if chunk.is_some() {
                    self.stage = Stage::Blob(wire, blob);
                    return Ok(chunk);
                }
                let found = wire.finish().map_err(|error| failed(error, &name()))?;
                same("disk", &blob.digest, found.unwrap_or(blob.digest))?;
                self.stage = Stage::Complete;
                Ok(None)
            }
            Stage::Complete => {
                self.stage = Stage::Complete;
                Ok(None)
            }
            Stage::Refused => Err(Error::OnePass { name: name() }),
        }
    }
}

impl ByteStream for DiskStream {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.step().map_err(Into::into)
    }
}
