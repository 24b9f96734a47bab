//! How the program comes into another image: pods of existing controllers run `sh -c "cp PROGRAM TO"` in the importer's
//! image, which has no shell. Under the name `sh` the program understands that line, and those of
//! `runtime::container_command`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The exit code of a shell for a command that does not exist.
pub const NO_SUCH_COMMAND: u8 = 127;

/// The source and target of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    pub from: PathBuf,
    /// A file that is there afterwards.
    pub to: PathBuf,
}

/// Whether the program was called as a shell. `name` is the first of its arguments.
pub fn is_called_so(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|name| name == "sh")
}

impl Copy {
    /// Reads the arguments of a shell.
    ///
    /// # Errors
    /// A message, unless they are the copy of one file.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let arguments: Vec<_> = arguments.into_iter().collect();
        let refuse = || {
            let command: String = arguments.join(" ").escape_debug().collect();
            format!(
                "there is no shell in this image: it knows -c \"cp FROM TO\", kill PID and cat FILE, and not {command}"
            )
        };
        let [flag, line] = arguments.as_slice() else { return Err(refuse()) };
        let words: Vec<_> = line.split_whitespace().collect();
        match words.as_slice() {
            ["cp", from, to] if flag == "-c" && is_plain(from) && is_plain(to) => {
                Ok(Self { from: from.into(), to: to.into() })
            }
            _ => Err(refuse()),
        }
    }

    /// Makes the copy, which may be executed if the original may.
    ///
    /// # Errors
    /// On I/O errors.
    pub fn make(&self) -> io::Result<()> {
        fs::copy(&self.from, &self.to).map(drop)
    }
}

/// Means itself in a shell, too.
fn is_plain(word: &str) -> bool {
    !word.starts_with('-') && word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_copies_one_file_and_does_nothing_else() {
        assert!(is_called_so("sh") && is_called_so("/bin/sh"));
        assert!(!is_called_so("/usr/bin/cdi-containerimage-server") && !is_called_so(""));
        let parse = |words: &[&str]| Copy::parse(words.iter().map(|word| (*word).to_owned()));
        let line = "cp /usr/bin/cdi-containerimage-server /shared/server";
        let copy = parse(&["-c", line]).unwrap();
        assert_eq!(copy.from, Path::new("/usr/bin/cdi-containerimage-server"));
        assert_eq!(copy.to, Path::new("/shared/server"));
        let refused: [&[&str]; 8] = [
            &[],
            &["-c"],
            &[line],
            &["-c", "cp a"],
            &["-c", "cp a b; rm c"],
            &["-c", "cp $(a) b"],
            &["-c", "cp -r a b"],
            &["-c", "rm a b"],
        ];
        for arguments in refused {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains("there is no shell in this image"), "{error}");
        }
    }

    #[test]
    fn a_copy_of_a_program_is_a_program() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&from, "program").unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&to, "an earlier and longer program").unwrap();
        Copy { from: from.clone(), to: to.clone() }.make().unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "program");
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(Copy { from: directory.path().join("absent"), to }.make().is_err());
    }
}
