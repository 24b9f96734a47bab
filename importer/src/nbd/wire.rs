//! The numbers of the protocol, and what is read out of its short messages.
//!
//! Source: the NBD protocol (doc/proto.md of the NetworkBlockDevice project).

/// `NBDMAGIC`
pub(super) const HELLO: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`
pub(super) const OPTION: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Both of the server's first word and of ours.
pub(super) const FIXED_NEWSTYLE: u16 = 1 << 0;
pub(super) const NO_ZEROES: u16 = 1 << 1;

pub(super) const OPT_STARTTLS: u32 = 5;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const REP_ACK: u32 = 1;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
/// Set in every refusal.
pub(super) const REP_ERROR: u32 = 1 << 31;
pub(super) const REP_ERR_UNSUP: u32 = REP_ERROR | 1;
pub(super) const REP_ERR_POLICY: u32 = REP_ERROR | 2;
pub(super) const REP_ERR_TLS_REQD: u32 = REP_ERROR | 5;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

/// Several connections see the same bytes.
pub(super) const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;

pub(super) const CMD_READ: u16 = 0;
pub(super) const CMD_DISC: u16 = 2;
pub(super) const CMD_BLOCK_STATUS: u16 = 7;

/// The last chunk of a reply.
pub(super) const CHUNK_DONE: u16 = 1 << 0;
pub(super) const CHUNK_NONE: u16 = 0;
pub(super) const CHUNK_OFFSET_DATA: u16 = 1;
pub(super) const CHUNK_OFFSET_HOLE: u16 = 2;
pub(super) const CHUNK_BLOCK_STATUS: u16 = 5;
/// Set in every chunk that reports an error.
pub(super) const CHUNK_ERROR: u16 = 1 << 15;

/// Of `base:allocation`: the range reads as zeroes. (The other bit: it is not allocated, and may read as anything.)
pub(super) const STATE_ZERO: u32 = 1 << 1;
pub(super) const ALLOCATION: &str = "base:allocation";

/// Names and messages are no longer than this.
pub(super) const STRING_MAX: usize = 4096;

pub(super) fn request(command: u16, handle: u64, at: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(REQUEST.to_be_bytes());
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(handle.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend(OPTION.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// A text with its length before it.
pub(super) fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// The first bytes of a message, as a number. `None` where it is shorter.
pub(super) fn be_u16(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().copied().map(u16::from_be_bytes)
}

/// As [`be_u16`].
pub(super) fn be_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_be_bytes)
}

/// As [`be_u16`].
pub(super) fn be_u64(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().copied().map(u64::from_be_bytes)
}

/// Text of a server, fit to be shown.
pub(super) fn readable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(STRING_MAX)]);
    text.trim().escape_debug().collect()
}

/// Name of an error number of the protocol. The numbers are those of Linux where the meaning is the same.
pub(super) fn error_name(number: u32) -> String {
    match number {
        1 => "operation not permitted".into(),
        5 => "input/output error".into(),
        12 => "out of memory".into(),
        22 => "invalid argument".into(),
        28 => "no space left on device".into(),
        75 => "the request is too large".into(),
        95 => "operation not supported".into(),
        108 => "the server is shutting down".into(),
        other => format!("error {other}"),
    }
}
