//! `nbd://host/export`, `nbds://`, `nbd+unix:///export?socket=PATH` and `nbds+unix://`.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use url::{Host, Url};

use super::wire::STRING_MAX;
use crate::error::Error;
use crate::secret::RedactedUrl;

const PORT: u16 = 10809;

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// How messages call it.
    pub(super) name: RedactedUrl,
    pub(super) export: String,
    /// The server has to be connected to by TLS.
    pub(super) tls: bool,
    pub(super) place: NbdTransport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NbdTransport {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    pub(super) fn parse(location: &str) -> Result<Self, Error> {
        let refuse = |because: &str| Error::Address {
            url: RedactedUrl::of_text(location),
            because: because.to_owned(),
        };
        let url = Url::parse(location).map_err(|error| refuse(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("NBD knows no user or password"));
        }
        let export = url.path().strip_prefix('/').unwrap_or(url.path());
        let export = percent_decode_str(export).decode_utf8();
        let export = export.map_err(|_| refuse("the export's name is not UTF-8"))?.into_owned();
        if export.len() > STRING_MAX || export.contains('\0') {
            return Err(refuse("the export's name is too long or holds a zero"));
        }
        let (tls, unix) = match url.scheme() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(refuse("it is none of nbd, nbds, nbd+unix and nbds+unix")),
        };
        let socket = url.query_pairs().find(|(key, _)| key == "socket").map(|(_, value)| value);
        let (name, place) = match (unix, socket) {
            (true, Some(socket)) if url.host_str().is_none_or(str::is_empty) => {
                let path = PathBuf::from(socket.as_ref());
                (RedactedUrl::of_socket(url.scheme(), &export, &path), NbdTransport::Unix(path))
            }
            (true, Some(_)) => return Err(refuse("a socket is on no other machine")),
            (true, None) => return Err(refuse("it names no socket (?socket=PATH)")),
            (false, Some(_)) => return Err(refuse("a socket needs the scheme nbd+unix")),
            (false, None) => {
                let host = match url.host() {
                    Some(Host::Ipv6(address)) => address.to_string(),
                    Some(host) => percent_decode_str(&host.to_string())
                        .decode_utf8()
                        .map_err(|_| refuse("its host is not UTF-8"))?
                        .into_owned(),
                    None => String::new(),
                };
                if host.is_empty() {
                    return Err(refuse("it names no host"));
                }
                let port = url.port().unwrap_or(PORT);
                (RedactedUrl::from(&url), NbdTransport::Tcp { host, port })
            }
        };
        Ok(Self { name, export, tls, place })
    }

    /// Whom its certificate has to name.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, Error> {
        let host = match &self.place {
            NbdTransport::Tcp { host, .. } => host.clone(),
            NbdTransport::Unix(_) => "localhost".to_owned(),
        };
        ServerName::try_from(host)
            .map_err(|error| Error::Address { url: self.name.clone(), because: error.to_string() })
    }

    /// How errors call the other end.
    pub(super) fn host(&self) -> String {
        match &self.place {
            NbdTransport::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            NbdTransport::Tcp { host, port } => format!("{host}:{port}"),
            NbdTransport::Unix(path) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_contains_transport_and_export() {
        let tcp = |host: &str, port| NbdTransport::Tcp { host: host.into(), port };
        let table = [
            ("nbd://host", false, "", tcp("host", 10809)),
            ("nbd://host:1234/", false, "", tcp("host", 1234)),
            ("nbds://host/disk%201", true, "disk 1", tcp("host", 10809)),
            ("nbd://[::1]:7/a/b", false, "a/b", tcp("::1", 7)),
            (
                "nbd+unix:///?socket=/run/a.sock",
                false,
                "",
                NbdTransport::Unix("/run/a.sock".into()),
            ),
            ("nbds+unix:///e?socket=s%20s", true, "e", NbdTransport::Unix("s s".into())),
        ];
        for (location, tls, export, place) in table {
            let address = Address::parse(location).unwrap();
            assert_eq!((address.tls, &*address.export, address.place), (tls, export, place));
        }
        for location in [
            "nbd://",
            "nbd:///export",
            "nbd+unix:///export",
            "nbd+unix://host/?socket=a",
            "nbd://host/?socket=a",
            "nbd://user:hush@host/",
            "nbd://host/%ff",
            "nbd://host/a%00b",
            "http://host/",
        ] {
            let error = Address::parse(location).unwrap_err();
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
}
