//! Requests for shells in roots that this worker keeps.

use super::{Client, ClientError, SILENT_MAX, WAIT, broken};
use crate::api::{Input, Output, Shell, Wait};
use reqwest::StatusCode;

impl Client {
    /// Waits half a minute for a shell that the yard wants.
    ///
    /// # Errors
    /// See [`ClientError`]. A door from before shells were added refuses the request.
    pub fn next_shell(&self) -> Result<Option<Shell>, ClientError> {
        let wait = Wait { wait: WAIT.as_secs() };
        let request = || self.http.get(self.at("/v1/shells")).timeout(WAIT + SILENT_MAX).query(&wait);
        let answer = self.in_session(&request)?;
        match answer.status() {
            StatusCode::NO_CONTENT => Ok(None),
            _ => answer.json().map(Some).map_err(broken),
        }
    }

    /// Waits half a minute for input of a shell from an offset on, before which all has arrived. Empty if there is none yet.
    ///
    /// # Errors
    /// See [`ClientError`]. A shell that is over is refused.
    pub fn shell_input(&self, id: &str, offset: u64) -> Result<Vec<u8>, ClientError> {
        let input = Input { offset, wait: WAIT.as_secs() };
        let url = self.at(&format!("/v1/shells/{id}/input"));
        let request = || self.http.get(url.clone()).timeout(WAIT + SILENT_MAX).query(&input);
        Ok(self.in_session(&request)?.bytes().map_err(broken)?.to_vec())
    }

    /// Sends output of a shell. What has arrived already changes nothing. Returns false if it has not arrived, since the
    /// yard's end reads nothing now.
    ///
    /// # Errors
    /// See [`ClientError`]. A shell that is over is refused.
    pub fn shell_output(&self, id: &str, offset: u64, bytes: &[u8]) -> Result<bool, ClientError> {
        let url = self.at(&format!("/v1/shells/{id}/output"));
        let request = || {
            let post = self.http.post(url.clone()).timeout(SILENT_MAX);
            post.query(&Output { offset }).body(bytes.to_vec())
        };
        Ok(self.in_session(&request)?.status() != StatusCode::ACCEPTED)
    }
}
