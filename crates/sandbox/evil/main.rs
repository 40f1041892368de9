//! A worker that misbehaves, for the tests of this crate.
//!
//! It locks itself in exactly as the real one does, then misbehaves as its job says. Not part of the product.
//! If an act did not kill it, it reports whether it got what it wanted, so that the test can see an escape.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "hostile code on purpose; it runs in tests only"
)]

mod calls;
mod frames;
mod sockets;

use serde_json::{Value, json};
use sluice_protocol::{WorkerExchange, WorkerItem, WorkerJobOutcome, WorkerReport};
use sluice_sandbox::child::{self, EXIT_PANICKED, LockedInWorker};

/// Number of jobs that this process has had.
static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The result of an act: the errno of its refusal, or `Ok` if it succeeded.
pub type EvilActResult = Result<(), i64>;

fn main() {
    if std::env::args_os().nth(1).is_some_and(|role| role == "stranger") {
        sluice_sandbox::third_party::enter();
    }
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("sockets") => sockets::look_for_a_way_out(arguments),
        Some("reach") => sockets::reach(arguments),
        _ => {}
    }
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line()));
        child::last_words(&place);
        child::exit(EXIT_PANICKED);
    }));
    let Ok(mut inside) = child::enter(|| ()) else { child::exit(70) };
    if inside.is_zygote() {
        inside = inside.serve_as_zygote().unwrap_or_else(|_| child::exit(74));
    }
    let Ok(job) = inside.job() else { child::exit(71) };
    let act = job.kind.clone();
    let payload = job.payload.clone();
    let got = match act.as_str() {
        "echo" => {
            let report = WorkerReport { outcome: WorkerJobOutcome::Done(payload), attachments: job.attachments };
            inside.report(report).unwrap();
            child::exit(0);
        }
        "ask" => {
            let reply = inside.exchange(exchange()).unwrap();
            done(inside, json!(format!("{reply:?}")));
        }
        "items" => {
            for n in 0..3 {
                inside.item(WorkerItem { payload: json!(n), attachments: vec![vec![n; 10]] }).unwrap();
            }
            done(inside, json!(null));
        }
        "keep_a_draft" => {
            let scratch = inside.scratch().unwrap();
            scratch.write("draft.md", b"dear all").unwrap();
            let read = scratch.read("draft.md", 100).unwrap();
            let long = scratch.read("draft.md", 3).is_err();
            scratch.remove("draft.md").unwrap();
            let outside = scratch.read("../outside.txt", 100).is_err();
            scratch.write("letter.md", b"kept").unwrap();
            done(inside, json!([String::from_utf8(read).unwrap(), long, outside]));
        }
        "ask_forever" => loop {
            inside.exchange(exchange()).unwrap();
        },
        "descriptors" => {
            // A read of zero bytes tells open from closed; the scratch folder cannot be read but supports `fstat`.
            let (mut room, mut status) = ([0_u8; 1], [0_u64; 32]);
            let with_scratch = inside.scratch().is_some();
            let mut open = |fd: &i32| unsafe {
                libc::read(*fd, room.as_mut_ptr().cast(), 0) == 0
                    || with_scratch && libc::syscall(libc::SYS_fstat, *fd, status.as_mut_ptr()) == 0
            };
            let open: Vec<i32> = (0..2000).filter(&mut open).collect();
            done(inside, json!(open));
        }
        "count" => done(inside, json!(LIVES.fetch_add(1, std::sync::atomic::Ordering::Relaxed))),
        "panic" => panic!("the words of a stranger: {payload}"),
        "exit_silently" => child::exit(0),
        "exit_three" => child::exit(3),
        "report_and_stay" => {
            inside.report(WorkerReport { outcome: WorkerJobOutcome::Done(json!(1)), attachments: Vec::new() }).unwrap();
            calls::hang();
        }
        "fill_memory" => {
            let mut held = Vec::new();
            loop {
                held.push(vec![held.len() as u8 | 1; 1 << 20]);
            }
        }
        "one_huge_allocation" => {
            let huge: Vec<u8> = Vec::with_capacity(1 << 40);
            Err(huge.capacity() as i64)
        }
        "stack_overflow" => Err(deep(u64::from(std::process::id()))),
        "spin" => loop {
            std::hint::spin_loop();
        },
        "abort" => std::process::abort(),
        name => frames::act(name).or_else(|| calls::act(name, &payload)).unwrap_or_else(|| panic!("no such act")),
    };
    done(inside, json!({"escaped": got.is_ok(), "errno": got.err()}));
}

fn done(inside: LockedInWorker, value: Value) -> ! {
    let report = WorkerReport { outcome: WorkerJobOutcome::Done(value), attachments: Vec::new() };
    child::exit(if inside.report(report).is_ok() { 0 } else { 72 })
}

fn exchange() -> WorkerExchange {
    WorkerExchange {
        ticket: "t".into(),
        method: "GET".into(),
        path: "/".into(),
        headers: Vec::new(),
        body: vec![1; 100],
    }
}

#[expect(unconditional_recursion, reason = "that is the act")]
fn deep(n: u64) -> i64 {
    let here = std::hint::black_box([n; 64]);
    deep(here[3] + 1) + here[7] as i64
}
