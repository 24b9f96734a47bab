//! The arguments, which existing pods give as Go programs take them: `-name value` or `-name=value`.

use std::path::PathBuf;

/// What `-h` prints.
pub const USAGE: &str = "\
Usage of cdi-containerimage-server:
  -p int               port to listen on, of localhost (default 8100)
  -image-dir string    directory that holds the disk (default \".\")
  -ready-file string   written when the disk can be requested (default \"/shared/ready\")
  -done-file string    ends the server when it appears (default \"/shared/done\")
";

/// What to serve, where, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub port: u16,
    /// Holds exactly one regular file.
    pub image_dir: PathBuf,
    /// Exists once the server is ready. Holds the file name of the disk.
    pub ready_file: PathBuf,
    /// Exists once the server is no longer needed.
    pub done_file: PathBuf,
    /// The file system of the image: `/`, but for tests.
    pub root: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Print [`USAGE`].
    Help,
    Run(Config),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 8100,
            image_dir: ".".into(),
            ready_file: "/shared/ready".into(),
            done_file: "/shared/done".into(),
            root: "/".into(),
        }
    }
}

impl Config {
    /// Reads the arguments behind the program's name.
    ///
    /// # Errors
    /// A message about the first invalid one.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Parsed, String> {
        let mut config = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let flag = flag.ok_or_else(|| format!("unexpected argument: {argument}"))?;
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if matches!(name, "h" | "help") {
                return Ok(Parsed::Help);
            }
            let mut value = || {
                let value = value.clone().or_else(|| arguments.next());
                value.ok_or_else(|| format!("flag needs an argument: -{name}"))
            };
            match name {
                "p" => {
                    let text = value()?;
                    let wrong = |_| format!("invalid value {text:?} for flag -p");
                    config.port = text.parse().map_err(wrong)?;
                }
                "image-dir" => config.image_dir = value()?.into(),
                "ready-file" => config.ready_file = value()?.into(),
                "done-file" => config.done_file = value()?.into(),
                _ => return Err(format!("flag provided but not defined: -{name}")),
            }
        }
        Ok(Parsed::Run(config))
    }
}
