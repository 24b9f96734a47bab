//! Whether a response is of the image that was there at first.

use http::StatusCode;

use super::TransferSettings;
use crate::error::Error;
use crate::web::answer::{self, ContentRange};
use crate::web::client::show;
use crate::web::redirect::RedirectTarget;
use crate::web::transport::Response;

impl TransferSettings {
    /// Where the response to a request for `at..end` will end.
    pub(super) fn check_part_response(
        &self,
        at: u64,
        end: u64,
        response: &Response,
        target: &RedirectTarget,
    ) -> Result<u64, Error> {
        let nonsense = |because: String| Error::Answer { url: show(target), because };
        let range = ContentRange::from_headers(&response.headers);
        match response.status {
            StatusCode::PARTIAL_CONTENT => {
                self.same_mark(response)?;
                let range = range.ok_or_else(|| nonsense("206 without a Content-Range".into()))?;
                self.same_length(range.total)?;
                match range.part {
                    // Less than requested is allowed; the rest is then requested again.
                    Some((first, last)) if first == at && last < end => Ok(last + 1),
                    _ => Err(nonsense(format!("206 with another range than {at}-{}", end - 1))),
                }
            }
            // The response to `If-Range` when it is another image now.
            StatusCode::OK => {
                self.same_mark(response)?;
                self.same_length(answer::content_length(&response.headers))?;
                Err(Error::RangeIgnored { url: show(target) })
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                self.same_mark(response)?;
                self.same_length(range.and_then(|range| range.total))?;
                Err(self.client.refusal(response, target))
            }
            _ => Err(self.client.refusal(response, target)),
        }
    }

    /// Checks a response with the whole image. Returns its length, if the response has one.
    pub(super) fn check_whole_response(
        &self,
        response: &Response,
        target: &RedirectTarget,
    ) -> Result<Option<u64>, Error> {
        if response.status != StatusCode::OK {
            return Err(self.client.refusal(response, target));
        }
        self.same_mark(response)?;
        let length = answer::content_length(&response.headers);
        self.same_length(length)?;
        Ok(length)
    }

    fn same_mark(&self, response: &Response) -> Result<(), Error> {
        let Some(before) = &self.mark else { return Ok(()) };
        match answer::contradicts(before, &response.headers) {
            None => Ok(()),
            Some(after) => Err(self.changed(before.clone(), after)),
        }
    }

    fn same_length(&self, after: Option<u64>) -> Result<(), Error> {
        match (self.length, after) {
            (Some(before), Some(after)) if before != after => {
                Err(self.changed(bytes_long(before), bytes_long(after)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn changed(&self, before: String, after: String) -> Error {
        Error::Changed { name: self.client.name().to_string(), before, after }
    }
}

fn bytes_long(length: u64) -> String {
    format!("{length} bytes long")
}
