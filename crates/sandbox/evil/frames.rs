//! Attacks on the parent, over the socket.

use crate::{EvilActResult, calls};
use sluice_sandbox::child;

/// The socket, by its number.
const SOCKET: i32 = 3;

/// Runs the act, if it is one of these.
pub fn act(name: &str) -> Option<EvilActResult> {
    match name {
        "oversized_frame" => send(&u32::MAX.to_le_bytes()),
        "tiny_frame" => send(&[1, 0, 0, 0, 70]),
        "lying_lengths" => send(&framed(70, 3, b"{}", &[u32::MAX; 3])),
        "trailing_bytes" => send(&[framed(68, 0, br#"{"done":1,"of":null}"#, &[]).as_slice(), &[0; 100]].concat()),
        "noise" => send(&(0..70_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>()),
        "garbage_json" => send(&framed(70, 0, b"{\"outcome\": garbage", &[])),
        "not_utf8" => send(&framed(70, 0, &[b'"', 0xff, 0xfe, b'"'], &[])),
        "unknown_field" => send(&framed(68, 0, br#"{"done":1,"of":null,"admin":true}"#, &[])),
        "doubled_key" => send(&framed(68, 0, br#"{"done":1,"done":2,"of":null}"#, &[])),
        "unknown_kind" => send(&framed(200, 0, b"{}", &[])),
        "message_of_the_gateway" => send(&framed(2, 0, br#"{"kind":"echo","payload":null}"#, &[])),
        "locked_twice" => send(&framed(65, 0, br#"{"layers":[]}"#, &[])),
        "deep_json" => {
            let deep = format!("{{\"outcome\":{{\"done\":{}{}}}}}", "[".repeat(100_000), "]".repeat(100_000));
            send(&framed(70, 0, deep.as_bytes(), &[]))
        }
        "many_items_json" => {
            let wide = format!("{{\"outcome\":{{\"done\":[{}1]}}}}", "1,".repeat(1_000_000));
            send(&framed(70, 0, wide.as_bytes(), &[]))
        }
        "huge_report" => {
            let head = framed(70, 0, &[], &[]);
            let mut bytes = head[..4].to_vec();
            bytes.copy_from_slice(&(24_u32 << 20).to_le_bytes());
            send(&bytes);
            // The promised length would be far more than a head may have.
            let mut second = vec![70, 0];
            second.extend((20_u32 << 20).to_le_bytes());
            send(&second);
            (0..24 << 4).for_each(|_| send(&[b' '; 64 << 10]));
        }
        "split_request" => {
            let head = br#"{"ticket":"t","method":"GET","path":"/ HTTP/1.1\r\nhost: x","headers":[]}"#;
            send(&framed(66, 1, head, &[0]));
        }
        "two_reports" => {
            let report = framed(70, 0, br#"{"outcome":{"done":1}}"#, &[]);
            send(&[report.clone(), report].concat());
        }
        "half_a_frame_and_exit" => {
            send(&framed(70, 0, br#"{"outcome":{"done":1}}"#, &[])[..12]);
            child::exit(0);
        }
        "half_a_frame_and_hang" => send(&framed(70, 0, br#"{"outcome":{"done":1}}"#, &[])[..12]),
        "half_a_report_after_a_report" => {
            let report = framed(70, 0, br#"{"outcome":{"done":1}}"#, &[]);
            send(&report);
            send(&report[..9]);
            child::exit(0);
        }
        "flood_of_frames" => loop {
            send(&framed(68, 0, br#"{"done":1,"of":null}"#, &[]));
        },
        "flood_of_bytes" => loop {
            let mut frame = framed(67, 1, br#"{"payload":null}"#, &[1 << 20]);
            frame.resize(frame.len() + (1 << 20), 7);
            let length = (frame.len() - 4) as u32;
            frame[..4].copy_from_slice(&length.to_le_bytes());
            send(&frame);
        },
        "exchanges_without_listening" => loop {
            send(&{
                let head = br#"{"ticket":"t","method":"GET","path":"/","headers":[]}"#;
                framed(66, 1, head, &[0])
            });
        },
        _ => return None,
    }
    // The parent must answer this with a kill; the worker must not exit by itself.
    calls::hang()
}

/// A frame with a correct length and arbitrary content.
fn framed(kind: u8, blobs: u8, head: &[u8], lengths: &[u32]) -> Vec<u8> {
    let mut body = vec![kind, blobs];
    body.extend((head.len() as u32).to_le_bytes());
    lengths.iter().for_each(|length| body.extend(length.to_le_bytes()));
    body.extend(head);
    [(body.len() as u32).to_le_bytes().as_slice(), &body].concat()
}

fn send(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = unsafe { libc::write(SOCKET, bytes.as_ptr().cast(), bytes.len()) };
        if count <= 0 {
            calls::hang();
        }
        bytes = &bytes[count as usize..];
    }
}
