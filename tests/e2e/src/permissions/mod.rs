//! The permissions of the installed programs, compared with the requests that the API server has seen: nothing that is
//! permitted is unused, and no request is refused.
//!
//! ```text
//! audit log ── audit::parse ──▶ AuditedRequest ─┐
//! deploy/   ── grant::read  ──▶ Grant ──────────┴─▶ Comparison ── findings ──▶ Finding
//!                                      Exception ──────────────────┘
//! ```
//!
//! Everything here is pure. `tests/e2e/rights` reads the files.

mod audit;
mod compare;
mod exceptions;
mod grant;

pub use audit::{AuditedRequest, parse};
pub use compare::{Comparison, Finding};
pub use exceptions::{EXCEPTIONS, Exception};
pub use grant::{Grant, read};
