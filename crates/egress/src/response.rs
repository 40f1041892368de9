//! Answer bodies: read to their end, or cut off.
//!
//! Takes the body as it arrives; gives its bytes, decompressed. Promise: never more than the cap is held in memory,
//! before or after decompression; a body that arrives too slowly, lies about its length or decompresses too far is an
//! error.

use std::io::Write;

use bytes::Bytes;
use flate2::write::{MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sluice_core::Millis;
use tokio::time::timeout;

use super::error::{ExchangeFailure, ExchangeFault, ExchangePhase};

/// The largest factor by which a body may grow when decompressed, once it is larger than [`HARMLESS`].
const RATIO: u64 = 200;
/// The size that every body may decompress to.
const HARMLESS: u64 = 1 << 20;

/// The limits of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseLimits {
    /// The largest size after decompression.
    pub most: u64,
    /// The longest pause between bytes.
    pub idle: Millis,
}

const fn cut(what: ExchangeFault) -> ExchangeFailure {
    ExchangeFailure { phase: ExchangePhase::Reply, what, sent: true }
}

/// Reads a body to its end.
pub(super) async fn read(
    mut body: Incoming,
    encoding: Option<&str>,
    bounds: ResponseLimits,
) -> Result<Bytes, ExchangeFailure> {
    let mut sink = BodyDecoder::new(encoding, bounds.most)?;
    // A body that announces too large a size is refused at once.
    if encoding.is_none() && hyper::body::Body::size_hint(&body).lower() > bounds.most {
        return Err(cut(ExchangeFault::TooLarge));
    }
    loop {
        let frame = timeout(bounds.idle.as_duration(), body.frame()).await.map_err(|_| cut(ExchangeFault::TooSlow))?;
        match frame {
            None => return sink.finish(),
            Some(Err(_)) => return Err(cut(ExchangeFault::Closed)),
            // Trailers are not used.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    sink.take(&data)?;
                }
            }
        }
    }
}

/// A buffer that does not grow beyond its cap.
struct CappedBuffer {
    bytes: Vec<u8>,
    most: u64,
    /// The bytes that arrived over the line so far.
    arrived: u64,
    full: Option<ExchangeFault>,
}

impl Write for CappedBuffer {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let size = (self.bytes.len() + data.len()) as u64;
        if size > self.most {
            self.full = Some(ExchangeFault::TooLarge);
        } else if size > HARMLESS && size > self.arrived.saturating_mul(RATIO) {
            self.full = Some(ExchangeFault::Bomb);
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

enum BodyDecoder {
    Plain(CappedBuffer),
    Gzip(Box<MultiGzDecoder<CappedBuffer>>),
    Deflate(Box<ZlibDecoder<CappedBuffer>>),
}

impl BodyDecoder {
    fn new(encoding: Option<&str>, most: u64) -> Result<Self, ExchangeFailure> {
        let capped = CappedBuffer { bytes: Vec::new(), most, arrived: 0, full: None };
        match encoding.map(str::trim) {
            None | Some("" | "identity") => Ok(Self::Plain(capped)),
            Some("gzip" | "x-gzip") => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(capped)))),
            Some("deflate") => Ok(Self::Deflate(Box::new(ZlibDecoder::new(capped)))),
            Some(_) => Err(cut(ExchangeFault::Encoding)),
        }
    }

    fn capped(&mut self) -> &mut CappedBuffer {
        match self {
            Self::Plain(capped) => capped,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
        }
    }

    fn take(&mut self, data: &[u8]) -> Result<(), ExchangeFailure> {
        let capped = self.capped();
        capped.arrived = capped.arrived.saturating_add(data.len() as u64);
        if capped.arrived > capped.most {
            return Err(cut(ExchangeFault::TooLarge));
        }
        let written = match self {
            Self::Plain(capped) => capped.write_all(data),
            Self::Gzip(decoder) => decoder.write_all(data),
            Self::Deflate(decoder) => decoder.write_all(data),
        };
        written.map_err(|_| cut(self.capped().full.unwrap_or(ExchangeFault::Encoding)))
    }

    fn finish(self) -> Result<Bytes, ExchangeFailure> {
        let ended = match self {
            Self::Plain(capped) => Ok(capped),
            // A HEAD or 304 answer has no body, whatever its header says.
            Self::Gzip(decoder) if decoder.get_ref().arrived == 0 => return Ok(Bytes::new()),
            Self::Deflate(decoder) if decoder.get_ref().arrived == 0 => return Ok(Bytes::new()),
            Self::Gzip(decoder) => decoder.finish(),
            Self::Deflate(decoder) => decoder.finish(),
        };
        ended.map(|capped| Bytes::from(capped.bytes)).map_err(|_| cut(ExchangeFault::Encoding))
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

    fn unzip(bytes: &[u8], most: u64) -> Result<Bytes, ExchangeFault> {
        let mut sink = BodyDecoder::new(Some("gzip"), most).unwrap_or_else(|_| panic!("gzip is known"));
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
        assert_eq!(unzip(&zeros, 1 << 20), Err(ExchangeFault::TooLarge));
        assert_eq!(unzip(&zeros, 1 << 30), Err(ExchangeFault::Bomb));
    }

    #[test]
    fn half_a_zip_and_noise_are_errors() {
        let whole = zipped(b"hello", 100);
        assert_eq!(unzip(&whole[..whole.len() / 2], 1 << 20), Err(ExchangeFault::Encoding));
        assert_eq!(unzip(b"no zip at all", 1 << 20), Err(ExchangeFault::Encoding));
        assert!(BodyDecoder::new(Some("br"), 1).is_err() && BodyDecoder::new(Some("gzip, gzip"), 1).is_err());
    }
}
