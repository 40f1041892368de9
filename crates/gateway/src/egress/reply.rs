//! Answers: read to their end, or cut off.
//!
//! Takes the body as it arrives; gives its bytes, inflated. Promise: never more than the cap is held in memory,
//! before or after inflating; an answer that drips, lies about its length or inflates beyond reason is an error.

use std::io::Write;

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sluice_core::Span;
use tokio::time::timeout;

use super::no::{Failed, Phase, What};

/// How far a body may inflate, once it is larger than [`HARMLESS`].
const RATIO: u64 = 200;
/// What every body may inflate to.
const HARMLESS: u64 = 1 << 20;

/// What an answer may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Largest, inflated.
    pub most: u64,
    /// Longest silence.
    pub idle: Span,
}

const fn cut(what: What) -> Failed {
    Failed { phase: Phase::Reply, what, sent: true }
}

/// Reads a body to its end.
pub(super) async fn read(mut body: Incoming, encoding: Option<&str>, bounds: Bounds) -> Result<Bytes, Failed> {
    let mut sink = Sink::new(encoding, bounds.most)?;
    // What is announced to be too large is not waited for.
    if encoding.is_none() && hyper::body::Body::size_hint(&body).lower() > bounds.most {
        return Err(cut(What::TooLarge));
    }
    loop {
        let frame = timeout(bounds.idle.as_duration(), body.frame()).await.map_err(|_| cut(What::TooSlow))?;
        match frame {
            None => return sink.finish(),
            Some(Err(_)) => return Err(cut(What::Closed)),
            // Trailers are of no use to anyone here.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    sink.take(&data)?;
                }
            }
        }
    }
}

/// A buffer that refuses to grow beyond its cap.
struct Capped {
    bytes: Vec<u8>,
    most: u64,
    /// Bytes that came over the line so far.
    arrived: u64,
    full: Option<What>,
}

impl Write for Capped {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let size = (self.bytes.len() + data.len()) as u64;
        if size > self.most {
            self.full = Some(What::TooLarge);
        } else if size > HARMLESS && size > self.arrived.saturating_mul(RATIO) {
            self.full = Some(What::Bomb);
        }
        if self.full.is_some() {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

enum Sink {
    Plain(Capped),
    Gzip(Box<MultiGzDecoder<Capped>>),
    Deflate(Box<ZlibDecoder<Capped>>),
}

impl Sink {
    fn new(encoding: Option<&str>, most: u64) -> Result<Self, Failed> {
        let capped = Capped { bytes: Vec::new(), most, arrived: 0, full: None };
        match encoding.map(str::trim) {
            None | Some("" | "identity") => Ok(Self::Plain(capped)),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(capped)))),
            Some("deflate") => Ok(Self::Deflate(Box::new(ZlibDecoder::new(capped)))),
            Some(_) => Err(cut(What::Encoding)),
        }
    }

    fn capped(&mut self) -> &mut Capped {
        match self {
            Self::Plain(capped) => capped,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), Failed> {
        let capped = self.capped();
        capped.arrived = capped.arrived.saturating_add(data.len() as u64);
        if capped.arrived > capped.most {
            return Err(cut(What::TooLarge));
        }
        let written = match self {
            Self::Plain(capped) => capped.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
            Self::Deflate(decoder) => decoder.write_all(data),
        };
        written.map_err(|_| cut(self.capped().full.unwrap_or(What::Encoding)))
    }

    fn finish(self) -> Result<Bytes, Failed> {
        let ended = match self {
            Self::Plain(capped) => Ok(capped),
            // Nothing at all is what a HEAD or a 304 has, whatever its header says.
            Self::Gzip(decoder) if decoder.get_ref().arrived == 0 => return Ok(Bytes::new()),
            Self::Deflate(decoder) if decoder.get_ref().arrived == 0 => return Ok(Bytes::new()),
            Self::Gzip(decoder) => decoder.finish(),
            Self::Deflate(decoder) => decoder.finish(),
        };
        ended.map(|capped| Bytes::from(capped.bytes)).map_err(|_| cut(What::Encoding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    fn zipped(chunk: &[u8], times: usize) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..times {
            encoder.write_all(chunk).unwrap();
        }
        encoder.finish().unwrap()
    }

    fn unzip(bytes: &[u8], most: u64) -> Result<Bytes, What> {
        let mut sink = Sink::new(Some("gzip"), most).unwrap_or_else(|_| panic!("gzip is known"));
        for part in bytes.chunks(1000) {
            sink.take(part).map_err(|failed| failed.what)?;
        }
        sink.finish().map_err(|failed| failed.what)
    }

    #[test]
    fn what_was_zipped_is_whole_again() {
        assert_eq!(unzip(&zipped(b"hello ", 3), 100).unwrap(), "hello hello hello ");
        let two = [zipped(b"one ", 1), zipped(b"two", 1)].concat();
        assert_eq!(unzip(&two, 100).unwrap(), "one two", "several members are one body");
    }

    #[test]
    fn a_bomb_is_cut_off_at_the_cap_or_the_ratio() {
        let zeros = zipped(&[0; 1 << 16], 512);
        assert_eq!(unzip(&zeros, 1 << 20), Err(What::TooLarge));
        assert_eq!(unzip(&zeros, 1 << 30), Err(What::Bomb));
    }

    #[test]
    fn half_a_zip_and_noise_are_errors() {
        let whole = zipped(b"hello", 100);
        assert_eq!(unzip(&whole[..whole.len() / 2], 1 << 20), Err(What::Encoding));
        assert_eq!(unzip(b"no zip at all", 1 << 20), Err(What::Encoding));
        assert!(Sink::new(Some("br"), 1).is_err() && Sink::new(Some("gzip, gzip"), 1).is_err());
    }
}
