//! A worker ends while its other threads still use the cryptographic library.

use std::process::Command;
use std::thread;

const CHILDREN: usize = 150;
const THREADS: usize = 32;
const EXIT_CODE: u8 = 7;

/// With a return from `main`, about two of 100 children were aborted by the destructor of AWS-LC.
#[test]
fn process_ends_with_its_code_while_threads_use_random_bytes() {
    let program = std::env::current_exe().unwrap();
    for child in 0..CHILDREN {
        let arguments = ["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"];
        let output = Command::new(&program).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(EXIT_CODE.into()), "child {child}: {output:?}");
        assert!(text.contains("the last line"), "child {child}: {text}"); // stdout is flushed
    }
}

#[test]
#[ignore = "started by the other test, as the process that ends"]
fn child() {
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut [0; 16]).unwrap(); // the global generator exists
    for _ in 0..THREADS {
        // Its first random byte makes a thread ask the global generator for a seed.
        thread::spawn(move || random.fill(&mut [0; 16]));
    }
    print!("the last line");
    runtime::exit_process(EXIT_CODE);
}
