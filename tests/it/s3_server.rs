//! An S3 server of another project: `s3s-fs` serves a directory, checks signatures, and responds as S3 does.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tests::Import;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub const KEY_ID: &str = "AKIDEXAMPLE";
pub const SECRET_KEY: &str = "hush/hush+hush0123456789hush0123456789hu";
pub const BUCKET: &str = "images";

/// The server, with one bucket. It stops on drop.
pub struct S3Server {
    folder: TempDir,
    address: SocketAddr,
    _runtime: Runtime,
}

impl S3Server {
    /// Asks for signatures by [`KEY_ID`] and [`SECRET_KEY`].
    pub fn private() -> Self {
        Self::start(|builder| builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET_KEY)))
    }

    /// Allows anonymous reads and writes.
    pub fn public() -> Self {
        Self::start(|_| {})
    }

    fn start(settings: impl FnOnce(&mut S3ServiceBuilder)) -> Self {
        let folder = TempDir::with_prefix("cdi-s3-").expect("cannot make a folder");
        fs::create_dir(folder.path().join(BUCKET)).expect("cannot make a bucket");
        let store = FileSystem::new(folder.path()).expect("cannot serve a folder");
        let mut builder = S3ServiceBuilder::new(store);
        settings(&mut builder);
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("cannot start a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("cannot listen on loopback");
        let address = listener.local_addr().expect("a listener has an address");
        runtime.spawn(serve(listener, service));
        Self { folder, address, _runtime: runtime }
    }

    /// Puts an object into the bucket.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let path = self.folder.path().join(BUCKET).join(key);
        fs::create_dir_all(path.parent().expect("a key is in a bucket")).expect("cannot make it");
        fs::write(path, bytes).expect("cannot put an object");
    }

    /// Puts an object into the public bucket as a client would, which sends its checksum along.
    pub fn upload(&self, key: &str, bytes: &[u8], checksum: (&str, &str)) {
        let mut stream = TcpStream::connect(self.address).expect("no server");
        let head = format!(
            "PUT /{BUCKET}/{key} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{}: {}\r\nConnection: \
             close\r\n\r\n",
            self.address,
            bytes.len(),
            checksum.0,
            checksum.1
        );
        stream.write_all(head.as_bytes()).expect("cannot send");
        stream.write_all(bytes).expect("cannot send");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("no response");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An import of an object, without keys yet.
    pub fn import(&self, key: &str, target: &Path) -> Import {
        import(&format!("s3://{BUCKET}/{key}"), &self.endpoint(), target)
    }

    /// With the right ones.
    pub fn signed(&self, key: &str, target: &Path) -> Import {
        with_keys(self.import(key, target), SECRET_KEY)
    }
}

/// `cdi import s3://… --s3-endpoint …`, in an environment without keys.
pub fn import(location: &str, endpoint: &str, target: &Path) -> Import {
    Import::new(location, target)
        .option("--s3-endpoint", endpoint)
        .variable("AWS_EC2_METADATA_DISABLED", "true")
        .variable("AWS_CONFIG_FILE", "/dev/null")
        .variable("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
}

pub fn with_keys(import: Import, secret_key: &str) -> Import {
    import.variable("AWS_ACCESS_KEY_ID", KEY_ID).variable("AWS_SECRET_ACCESS_KEY", secret_key)
}

async fn serve(listener: TcpListener, service: S3Service) {
    while let Ok((stream, _)) = listener.accept().await {
        let service = service.clone();
        tokio::spawn(async move {
            let builder = hyper::server::conn::http1::Builder::new();
            // A client that disconnects early is no error.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
